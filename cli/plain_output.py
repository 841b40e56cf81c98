"""Answers for people: text on stdout as it comes, reasoning and numbers around it on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..engine.events import (
    Event,
    Notice,
    PrefillProgress,
    ReasoningDelta,
    StepDone,
    TextDelta,
    ToolCallDone,
    ToolResultDone,
    ToolStarted,
)
from ..engine.messages import Message
from ..engine.sanitize import Sanitizer, sanitize
from ..errors import MlxchatError, UsageError
from .output import Output
from .prefill_bar import SHOWN_AFTER_S, plain_line
from .stats_line import print_stats
from .streams import Streams
from .tool_lines import call_line, result_line, visible
from .turn_result import TurnResult

if TYPE_CHECKING:
    from ..engine.engine import EngineInfo


class PlainOutput(Output):
    """`stream` False holds the answer back until it is whole; `show_stats` adds the numbers after each turn.

    `blank_between` keeps the answers of several turns apart where nothing else stands between them.

    markdown          whether answers are rendered, where the terminal can
    reasoning_shown   whether reasoning is shown while it comes, where the terminal can
    last_reasoning    that of the last answer that had some
    """

    def __init__(
        self,
        streams: Streams,
        stream: bool = True,
        show_stats: bool = False,
        blank_between: bool = False,
        clock: Callable[[], float] = time.monotonic,
        markdown: bool = True,
    ) -> None:
        self.markdown = markdown
        self.reasoning_shown = True
        self.last_reasoning = ""
        self._streams = streams
        self._stream = stream
        self._show_stats = show_stats
        self._blank_between = blank_between
        self._clock = clock
        self._turns = 0
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._answer = Sanitizer()
        self._reasoning = Sanitizer()
        self._last = {"answer": "", "reasoning": ""}
        self._last_step: Message | None = None
        self._thoughts = ""
        self._progress_from: float | None = None
        self._transient = False
        self._said_plainly: set[str] = set()

    def session(self, info: EngineInfo, session_id: str | None) -> None:
        """Nothing to say: the REPL has its own greeting."""

    def event(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, PrefillProgress):
            self._prefill(event)
        elif isinstance(event, ReasoningDelta):
            self._reason(event)
        elif isinstance(event, TextDelta):
            if self._stream:
                self._say(self._answer.feed(event.text))
        elif isinstance(event, ToolCallDone):
            self._clear_transient()
            self._end_lines()
            self._streams.note(f"calls {call_line(event.call.name, event.call.arguments)}")
        elif isinstance(event, ToolStarted):
            self._show_transient(f"{visible(event.call.name)} is running …")
        elif isinstance(event, ToolResultDone):
            self._clear_transient()
            self._streams.note(result_line(event.call.name, event.result))
        elif isinstance(event, StepDone):
            self._end_step(event.message)
        elif isinstance(event, Notice):
            self._notice(event.text)

    def turn(self, result: TurnResult) -> None:
        """Finish the turn's lines; its numbers if wanted."""
        if not self._stream and result.message is not self._last_step:
            self._say(sanitize(result.message.text))
        self._end_lines()
        if result.finish_reason == "length":
            self._streams.note("(stopped at the limit of max_tokens or of the context)")
        elif result.finish_reason == "max_steps":
            self._streams.note("(stopped at the limit of --max-steps)")
        elif result.finish_reason == "stop" and not result.message.text.strip() and not result.message.tool_calls:
            self._streams.note("(the model ended without an answer)")
        if self._show_stats:
            for stats in result.requests:
                print_stats(stats, self._streams)
        self._turns += 1
        self._begin_turn()

    def failed(self, error: MlxchatError) -> None:
        """End the line that the answer broke off in; whoever caught the error says the rest."""
        self.drop_turn()

    def drop_turn(self) -> None:
        """End the lines of a turn that isn't kept."""
        self._end_lines()
        self._begin_turn()

    def show_reasoning(self, shown: bool) -> None:
        """Show the reasoning of the answers to come, or only that there is some."""
        self.reasoning_shown = shown

    def choose_markdown(self, how: str) -> None:
        """`/markdown on` and `off`; anything else says which it is. Raises UsageError for other words."""
        if how not in ("", "on", "off"):
            raise UsageError(f"/markdown takes on or off, not {how}", "/markdown alone says which it is")
        self.markdown = how == "on" or (not how and self.markdown)
        can = "" if self._streams.renders else "; this terminal can't show it"
        self._streams.note(f"markdown is {'on' if self.markdown else 'off'}{can}")

    def finished(self, exit_code: int) -> None:
        """Nothing is left to say."""

    def _end_step(self, message: Message) -> None:
        """An answer that called tools is over; the next one begins on a line of its own."""
        if not self._stream:
            self._say(sanitize(message.text))
        self._end_lines()
        self._begin_turn()
        self._last_step = message

    def _say(self, text: str) -> None:
        if not text:
            return
        self._clear_transient()
        if not self._last["answer"]:
            self._end_reasoning()
            if self._turns and self._blank_between:
                text = f"\n{text}"
        self._streams.write(text)
        self._last["answer"] = text

    def print_reasoning(self) -> None:
        """The last answer's reasoning, below everything else."""
        text = self.last_reasoning.strip("\n")
        self._streams.dim(f"{text}\n" if text else "no reasoning yet\n")

    def _reason(self, event: ReasoningDelta) -> None:
        shown = self._reasoning.feed(event.text)
        self._thoughts += shown
        if self._streams.dumb:
            self._say_once("thinking …")
        elif not (self._streams.shows_reasoning and self.reasoning_shown):
            self._show_transient("thinking …")
        elif shown:
            self._clear_transient()
            self._streams.dim(shown)
            self._last["reasoning"] = shown

    def _prefill(self, event: PrefillProgress) -> None:
        now = self._clock()
        if self._progress_from is None:
            self._progress_from = now
        if event.done < event.total and now - self._progress_from >= SHOWN_AFTER_S:
            if self._streams.dumb:
                self._say_once(plain_line(event))
            self._show_transient(f"reading {event.done:,} of {event.total:,} tokens ({event.cached:,} reused) …")

    def _notice(self, text: str) -> None:
        self._clear_transient()
        self._streams.note(text)

    def _end_reasoning(self) -> None:
        self.last_reasoning, self._thoughts = self._thoughts or self.last_reasoning, ""
        last = self._last["reasoning"]
        if last:
            self._streams.dim("\n" if last.endswith("\n") else "\n\n")
            self._last["reasoning"] = ""

    def _say_once(self, line: str) -> None:
        """A line that a terminal without moving text gets once a turn."""
        if line not in self._said_plainly:
            self._said_plainly.add(line)
            self._streams.note(line)

    def _end_lines(self) -> None:
        self._clear_transient()
        self._end_reasoning()
        if self._last["answer"] and not self._last["answer"].endswith("\n"):
            self._streams.write("\n")

    def _show_transient(self, text: str) -> None:
        self._streams.transient(text)
        self._transient = True

    def _clear_transient(self) -> None:
        if self._transient:
            self._streams.transient("")
            self._transient = False
