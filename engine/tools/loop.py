"""The turns of a model that calls tools: ask, run what it calls, tell it what came of that, until it answers."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Protocol

from ..events import Event, Notice, StepDone, ToolResultDone, ToolStarted, TurnDone
from ..messages import Message, ToolCall, tool_result
from ..options import RequestOptions
from ..stats import FinishReason
from .approvals import Approvals
from .tool import Tool, ToolResult
from .toolbox import Toolbox

MAX_STEPS = 30


class Talk(Protocol):
    """The part of a conversation that the loop needs."""

    messages: list[Message]

    def add_result(self, message: Message) -> None:
        """Append a tool's result."""

    def go_on(self, options: RequestOptions) -> Iterator[Event]:
        """Have the model answer what it has been told."""

    def stop(self) -> None:
        """End the running request."""


class ToolLoop:
    """Follows a turn through all its requests. Used from one thread; `stop` from any, and from signal handlers.

    max_steps   how often the model may be asked in one turn
    """

    def __init__(self, toolbox: Toolbox, approvals: Approvals, max_steps: int = MAX_STEPS) -> None:
        self.toolbox = toolbox
        self.approvals = approvals
        self._max_steps = max_steps
        self._stopped = threading.Event()
        self._talk: Talk | None = None

    def stop(self) -> None:
        """End the turn: the running request, the running tool, and all that would have come after."""
        self._stopped.set()
        if self._talk is not None:
            self._talk.stop()

    @property
    def stopped(self) -> bool:
        """Whether the turn that runs is to end."""
        return self._stopped.is_set()

    def follow(self, talk: Talk, events: Iterator[Event], options: RequestOptions) -> Iterator[Event]:
        """The events of a turn that `events` begins: those of each request and, between two, of the tools.

        Each request but the last ends with StepDone, the last with TurnDone or TurnFailed. Every call is answered in
        the conversation, also one that was denied, interrupted or never begun, so that any turn can follow.
        """
        self._stopped.clear()
        self._talk = talk
        self.toolbox.refresh()
        try:
            yield from self._follow(talk, events, options)
        finally:
            self._talk = None

    def _follow(self, talk: Talk, events: Iterator[Event], options: RequestOptions) -> Iterator[Event]:
        denied = False
        before: TurnDone | None = None
        for step in range(1, self._max_steps + 1):
            ended: TurnDone | None = None
            for event in events:
                if isinstance(event, TurnDone):
                    ended = event
                else:
                    yield event
            if ended is None:
                return
            if not self._runs(ended):
                yield _last(talk, ended, before, denied)
                return
            cut: FinishReason | None = "max_steps" if step == self._max_steps else None
            for call in ended.message.tool_calls:
                result = yield from self._answer(call, cut)
                denied = denied or result.status == "denied"
                talk.add_result(tool_result(result.text, call.id, call.name))
                yield ToolResultDone(call, result)
            if self.stopped or cut:
                yield replace(ended, finish_reason=cut or "interrupted")
                return
            yield StepDone(ended.message, ended.stats)
            before = ended
            events = talk.go_on(options)

    def _runs(self, ended: TurnDone) -> bool:
        """Whether the turn goes on. A call of a tool that is only described is for whoever started the program."""
        calls = ended.message.tool_calls
        if not calls or ended.finish_reason != "stop":
            return False
        found = [self.toolbox.find(call.name) for call in calls]
        return all(tool is None or tool.runner is not None for tool in found)

    def _answer(self, call: ToolCall, cut: FinishReason | None) -> Generator[Event, None, ToolResult]:
        """Carry out one call, if it may be. Returns the result."""
        if self.stopped:
            return ToolResult("not_run", "not run: the user stopped the turn")
        if cut:
            return ToolResult("not_run", f"not run: the limit of {self._max_steps} steps was reached")
        tool = self.toolbox.find(call.name)
        if tool is None:
            names = ", ".join(one.name for one in self.toolbox.offered)
            return ToolResult("failed", f"error: there is no tool called {call.name}; there are: {names}")
        answer = self.approvals.decide(tool, call)
        if answer == "stop":
            self.stop()
            return ToolResult("not_run", "not run: the user stopped the turn")
        if answer == "deny":
            if not self.approvals.can_ask:
                yield Notice(f"denied: {call.name}, since nobody can be asked; --allow-tool {call.name} lets it run")
            return ToolResult("denied", "denied: the user did not allow this call")
        yield ToolStarted(call)
        return self._run(tool, call)

    def _run(self, tool: Tool, call: ToolCall) -> ToolResult:
        assert tool.runner is not None
        try:
            return tool.runner.run(call.arguments, self._stopped.is_set)
        except Exception as error:  # whatever a library does, the conversation goes on
            return ToolResult("failed", f"error: {' '.join(str(error).split())[:300] or type(error).__name__}")


def _last(talk: Talk, ended: TurnDone, before: TurnDone | None, denied: bool) -> TurnDone:
    """The end of the turn as its listener is to see it.

    A request stopped before it said a word leaves no message of its own: the turn's last one is then the one before.
    """
    if before is not None and not any(message is ended.message for message in talk.messages):
        ended = replace(ended, message=before.message)
    if denied and ended.finish_reason == "stop":
        ended = replace(ended, finish_reason="tool_denied")
    return ended
