"""Answers on a terminal: Markdown as it comes, reasoning folded, a bar while the prompt is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..engine.events import Event, PrefillProgress, ReasoningDelta
from .live_area import LiveArea, reflows
from .markdown_view import MarkdownView
from .plain_output import PlainOutput
from .prefill_bar import PrefillBar
from .reasoning_view import ReasoningView
from .rich_lines import RichLines
from .streams import Streams
from .terminal_size import size_of
from .ticker import INTERVAL_S, Ticker
from .turn_result import TurnResult
from .typed_ahead import TypedAhead


class LiveOutput(PlainOutput):
    """A PlainOutput that renders. Only the open block of an answer is live, and what is around the answer before it.

    markdown   whether answers are rendered; else their text comes as it is
    keys       what reads the keyboard meanwhile, in a conversation
    """

    def __init__(
        self,
        streams: Streams,
        stream: bool = True,
        show_stats: bool = False,
        blank_between: bool = False,
        clock: Callable[[], float] = time.monotonic,
        markdown: bool = True,
        keys: TypedAhead | None = None,
        ticker: bool = True,
    ) -> None:
        self._lock = threading.RLock()
        self._lines = RichLines(streams.may_style(streams.stdout), streams.may_color(streams.stdout))
        self._answer_area = LiveArea(streams.write, lambda: size_of(streams.stdout), reflows(streams.environment))
        self._side_area = LiveArea(streams.side, lambda: size_of(streams.stderr), reflows(streams.environment))
        self._ticker = Ticker(self.tick) if ticker else None
        self._keys = keys
        self._working = False
        super().__init__(streams, stream, show_stats, blank_between, clock, markdown)
        streams.aside, streams.question = self._aside, self.interlude

    def _begin_turn(self) -> None:
        super()._begin_turn()
        self._bar: PrefillBar | None = None
        self._thought: ReasoningView | None = None
        self._view: MarkdownView | None = None
        self._dirty = False
        self._drawn_at = -INTERVAL_S
        self._asked_for_reasoning = False
        self._status = ""

    # -- what is told ------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Show one event."""
        self._work()
        if self._ticker is not None:
            self._ticker.check()
        with self._lock:
            super().event(event)

    def turn(self, result: TurnResult) -> None:
        """Finish the turn's lines; its numbers if wanted."""
        self._rest()
        message = result.message
        if result.finish_reason == "stop" and self._thought and not (message.text.strip() or message.tool_calls):
            self._asked_for_reasoning = True  # it came to no answer: this is all there is
        super().turn(result)

    def drop_turn(self) -> None:
        """End the lines of a turn that isn't kept."""
        self._rest()
        super().drop_turn()

    @contextmanager
    def interlude(self) -> Iterator[None]:
        """Within it nothing is live and nobody reads the keyboard: a question can be asked in the middle of a turn."""
        working = self._working
        self._rest()
        with self._lock:
            self._clear_transient()
        try:
            yield
        finally:
            if working:
                self._work()

    # -- reasoning at a key's press ----------------------------------------------------------------------------

    def reasoning_key(self) -> None:
        """Ctrl-O while the model works: show or hide its reasoning, or, if it is folded, print it after the answer."""
        with self._lock:
            if self._thought is None and self.last_reasoning and (self._view is not None or self._last["answer"]):
                self._asked_for_reasoning = not self._asked_for_reasoning
            else:
                self.reasoning_shown = not self.reasoning_shown
            self._draw()

    # -- what comes --------------------------------------------------------------------------------------------

    def _prefill(self, event: PrefillProgress) -> None:
        now = self._clock()
        if self._bar is None:
            self._bar = PrefillBar(now)
        self._bar.progress(event, now)
        self._touch()

    def _reason(self, event: ReasoningDelta) -> None:
        self._bar = None
        if self._thought is None:
            self._end_answer()
            self._thought = ReasoningView(self._lines, self._clock())
        self._thought.feed(self._reasoning.feed(event.text), event.tokens)
        self._touch()

    def _say(self, text: str) -> None:
        if not text:
            return
        self._bar = None
        if not self.markdown:
            self._end_reasoning()
            super()._say(text)
            return
        if self._view is None:
            if not text.strip():
                return  # what stands before the first word is no block
            self._end_reasoning()
            if self._turns and self._blank_between and not self._last["answer"]:
                self._streams.write("\n")
            self._view = MarkdownView(self._lines)
        self._last["answer"] = "\n"
        self._view.feed(text)
        self._touch()

    def _notice(self, text: str) -> None:
        """It goes above what is live, and breaks nothing off."""
        self._streams.note(text)

    # -- drawing -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Draw what has changed, or moves by itself, if it is time."""
        with self._lock:
            moves = self._bar is not None or self._thought is not None
            if self._dirty or moves or self._answer_area.resized:
                self._draw()

    def _touch(self) -> None:
        self._dirty = True
        if self._clock() - self._drawn_at >= INTERVAL_S:
            self._draw()

    def _draw(self) -> None:
        self._dirty, self._drawn_at = False, self._clock()
        self._draw_side()
        if self._view is not None:
            self._answer_area.update(*self._view.draw(size_of(self._streams.stdout).columns))

    def _draw_side(self) -> None:
        """The bar or the reasoning, where both streams are one terminal."""
        if not self._streams.shows_reasoning:
            return
        now, width = self._clock(), size_of(self._streams.stderr).columns
        lines: list[str] = []
        if self._thought is not None:
            lines = self._thought.live(now, width, self.reasoning_shown)
        elif self._bar is not None and self._bar.is_due(now):
            lines = [self._bar.line(now, width)]
        elif self._status:
            lines = self._lines.dim(self._status, width)[:1]
        self._side_area.update([], lines)

    # -- ends --------------------------------------------------------------------------------------------------

    def _end_reasoning(self) -> None:
        """Fold it to one line."""
        self._bar = None
        self._status = ""
        thought, self._thought = self._thought, None
        if thought is not None:
            self.last_reasoning = thought.text
        if self._streams.shows_reasoning:
            self._side_area.update([], [])
            if thought is not None:
                self._streams.dim(f"{thought.folded(self._clock())}\n\n")

    def _end_answer(self) -> None:
        """The open block is finished as it stands."""
        view, self._view = self._view, None
        if view is not None:
            done, _ = view.draw(width := size_of(self._streams.stdout).columns)
            self._answer_area.update([*done, *view.end(width)], [])

    def _end_lines(self) -> None:
        with self._lock:
            self._end_reasoning()
            self._end_answer()
            super()._end_lines()
            if self._asked_for_reasoning:
                self.print_reasoning()

    def _show_transient(self, text: str) -> None:
        self._clear_transient()
        self._status = text
        self._draw()

    def _clear_transient(self) -> None:
        """Before a line that belongs after what has been said so far."""
        self._status = ""
        self._end_reasoning()
        self._end_answer()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Around a line on stderr that comes while something is live: it goes above that."""
        with self._lock:
            live = not (self._side_area.is_empty and self._answer_area.is_empty)
            if live:
                self._side_area.update([], [])
                self._answer_area.update([], [])
            yield
            if live:
                self._draw()

    # -- threads -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if not self._working:
            self._working = True
            if self._ticker is not None:
                self._ticker.start()
            if self._keys is not None:
                self._keys.start(self.reasoning_key)

    def _rest(self) -> None:
        self._working = False
        if self._ticker is not None:
            self._ticker.stop()
        if self._keys is not None:
            self._keys.stop()
