"""What came of one turn, and the loop that follows its events to the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ..engine.events import Event, StepDone, TextDelta, ToolResultDone, TurnDone, TurnFailed
from ..engine.messages import Message, ToolCall
from ..engine.stats import FinishReason, RequestStats
from ..engine.tools.tool import ToolResult
from ..errors import EngineFailed, MlxchatError


@dataclass(frozen=True)
class TurnResult:
    """One turn as it ended. `error` is set if it failed; `message` then holds what had been said.

    requests   the numbers of each request, in order
    answered   the calls that were answered while the turn went on, and what came of them
    """

    message: Message
    finish_reason: FinishReason
    requests: list[RequestStats] = field(default_factory=list)
    error: MlxchatError | None = None
    answered: list[tuple[ToolCall, ToolResult]] = field(default_factory=list)

    @property
    def open_calls(self) -> list[ToolCall]:
        """Calls that nobody has answered: those of tools that are only described, or of an answer that was cut."""
        return [call for call in self.message.tool_calls if not any(call is one for one, _ in self.answered)]


class EventSink(Protocol):
    """Whatever shows events while they come."""

    def event(self, event: Event) -> None:
        """Show one event."""


def follow(events: Iterator[Event], sink: EventSink) -> TurnResult:
    """Hand every event to `sink` and return the result of the turn."""
    said: list[str] = []
    requests: list[RequestStats] = []
    answered: list[tuple[ToolCall, ToolResult]] = []
    for event in events:
        sink.event(event)
        if isinstance(event, TextDelta):
            said.append(event.text)
        elif isinstance(event, ToolResultDone):
            answered.append((event.call, event.result))
        elif isinstance(event, StepDone):
            requests.append(event.stats)
            said.clear()
        elif isinstance(event, TurnDone):
            return TurnResult(event.message, event.finish_reason, [*requests, event.stats], answered=answered)
        elif isinstance(event, TurnFailed):
            return failed_turn(event.error, event.partial or "".join(said))
    return failed_turn(EngineFailed("the model stopped without ending its turn"), "".join(said))


def failed_turn(error: MlxchatError, said: str) -> TurnResult:
    """The result of a turn that `error` ended after `said`."""
    from ..engine.messages import assistant

    return TurnResult(assistant(said), "error", error=error)
