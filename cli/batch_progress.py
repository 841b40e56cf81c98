"""How far a batch is: a bar on a terminal's stderr, nothing elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ..transcripts.batch_tally import Tally
from .streams import Streams

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class BatchProgress:
    """Use it as a context; `show` after each line. Other words for stderr go through `note` meanwhile."""

    def __init__(self, streams: Streams, total: int) -> None:
        self._streams = streams
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if streams.live and total:
            self._start(total)

    def _start(self, total: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            BarColumn(),
            TextColumn("{task.fields[more]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console(),
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=total, more="")

    def _console(self) -> Console:
        """One that draws a bar without colour, too."""
        from rich.console import Console

        stderr, color = self._streams.stderr, self._streams.color
        return Console(file=stderr, force_terminal=True, no_color=not color, highlight=False, markup=False)

    def __enter__(self) -> BatchProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, tally: Tally) -> None:
        """One line more is done."""
        if self._bar is not None and self._task is not None:
            failed = f"{tally.failed:,} failed · " if tally.failed else ""
            more = f"{failed}{tally.tokens_per_s:.1f} tok/s"
            self._bar.update(self._task, completed=tally.answered + tally.failed, more=more)

    def note(self, line: str) -> None:
        """A line on stderr, above the bar if there is one."""
        if self._bar is None:
            self._streams.note(line)
        elif not self._streams.quiet:
            from ..engine.sanitize import sanitize

            self._bar.console.print(sanitize(line), soft_wrap=True)
