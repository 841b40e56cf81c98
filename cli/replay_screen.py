"""A replay for people: the table on stdout as it grows, a progress bar below it on a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..engine.sanitize import sanitize
from ..errors import MlxchatError
from ..transcripts.rows import Result, Row
from .replay_output import Opening, ReplayOutput
from .replay_table import Line, Table
from .replay_words import costs, heading, summary
from .streams import ColorChoice, Streams, is_terminal, wants_color

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_PIPE_WIDTH = 120


class ReplayScreen(ReplayOutput):
    """Finished lines are printed once and never change; only the bar is live."""

    def __init__(self, streams: Streams, color: ColorChoice, verbose: bool, width: int | None = None) -> None:
        self._streams = streams
        self._verbose = verbose
        self._to_terminal = is_terminal(streams.stdout)
        self._color = wants_color(color, streams.stdout, os.environ)
        self._width = width or (shutil.get_terminal_size().columns if self._to_terminal else _pipe_width())
        self._table = Table(self._width)
        self._planned = False
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def planning(self, done: int, total: int) -> None:
        """One transient line."""
        if done % 16 == 0 or done == total:
            self._streams.transient("" if done == total else f"rendering {done:,} of {total:,} …")

    def begin(self, opening: Opening) -> None:
        """The heading, the column titles, the bar."""
        self._planned = opening.planned
        self._table = Table(
            self._width,
            compared=opening.compared > 0,
            recorded=opening.recorded,
            planned=opening.planned,
            side_by_side=opening.conversations if opening.parallel > 1 else (),
        )
        self._print(heading(opening.subject, opening.share, opening.coming, self._width))
        self._print([self._table.head()])
        if self._streams.live and not opening.planned:
            self._start_bar(opening)

    def row(self, row: Row) -> None:
        """Its line; the bar goes on by what it prefilled."""
        self._print(self._table.rows(row))
        if self._bar is not None and self._task is not None:
            planned = row.planned
            done = planned.new_tokens + planned.answer_tokens if row.outcome == "run" else 0
            self._bar.update(self._task, advance=done)

    def notice(self, line: str) -> None:
        """Above the bar if there is one, else on stderr."""
        if self._bar is None:
            self._streams.notice(line)
        elif not self._streams.quiet:
            self._bar.console.print(sanitize(line), soft_wrap=True)

    def end(self, result: Result, exit_code: int) -> None:
        """Subtotals, sums, the costliest requests."""
        self._stop_bar()
        self._print(summary(result, self._table, self._planned))
        if result.rows:
            self._print(costs(result.rows, self._width, self._verbose))

    def failed(self, error: MlxchatError) -> None:
        """The table stays as it is; whoever caught the error says the rest."""
        self._stop_bar()
        self._streams.transient("")

    # -- lines -------------------------------------------------------------------------------------------------

    def _print(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._bar is not None and self._to_terminal:
                self._bar.console.print(_rich(line), soft_wrap=True)
            else:
                self._streams.write(self._text(line) + "\n")

    def _text(self, line: Line) -> str:
        if not self._color:
            return "".join(span.text for span in line).rstrip()
        from rich.console import Console

        console = Console(width=1 << 15, force_terminal=True, color_system="standard", no_color=False, highlight=False)
        with console.capture() as captured:
            console.print(_rich(line), end="", soft_wrap=True)
        return captured.get()

    # -- the bar -----------------------------------------------------------------------------------------------

    def _start_bar(self, opening: Opening) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = self._console() if self._to_terminal else self._streams.console
        tokens = opening.coming.prefill_tokens + opening.coming.answer_tokens
        self._bar = Progress(
            TextColumn("replaying"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} tokens"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=tokens)
        self._bar.start()

    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            file=self._streams.stdout, force_terminal=True, no_color=not self._color, highlight=False, markup=False
        )

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _rich(line: Line) -> object:
    from rich.text import Text

    return Text.assemble(*((span.text, span.style) for span in line))


def _pipe_width() -> int:
    """COLUMNS if it is set: a pipe has no width of its own."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        return _PIPE_WIDTH
