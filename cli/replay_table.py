"""The table of a replay: a line per request, as wide as the terminal, the same in a pipe without colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from ..engine.sanitize import sanitize
from ..engine.stats import Divergence
from ..transcripts.jobs import Job
from ..transcripts.padding import MARK
from ..transcripts.rows import Row, Totals
from .line_breaking import cut
from .stats_line import seconds, size

NARROWEST, WIDEST = 40, 220
WORDS: dict[Divergence, str] = {
    "first": "first",
    "append": "appended",
    "reasoning_dropped": "reasoning dropped",
    "history_edited": "history edited",
    "retokenized": "other tokens",
    "system_or_tools_changed": "system or tools",
    "image_changed": "other image",
    "other": "other",
}
_OUTCOMES = {"skipped_too_long": "skipped: too long", "no_request": "no request", "failed": "failed"}


@dataclass(frozen=True)
class Span:
    """Text of one style: "", "dim", "bold", "green", "yellow", "red" or "cyan"."""

    text: str
    style: str = ""


Line = list[Span]


@dataclass(frozen=True)
class Column:
    """`rank`: those of the lowest come first where the terminal is narrow. The cell of a row that didn't run is ""."""

    title: str
    width: int
    rank: int
    cell: Callable[[Row], str]
    style: str = ""


def _compared(row: Row) -> str:
    return "" if row.baseline is None else seconds(row.baseline.ttft_ms)


def _ratio(row: Row) -> str:
    if row.baseline is None or row.stats.ttft_ms <= 0:
        return ""
    return f"{row.baseline.ttft_ms / row.stats.ttft_ms:.1f}×"


def _reused(row: Row) -> str:
    stats = row.stats
    return f"{100 * stats.cached_tokens / stats.prompt_tokens:.0f} %" if stats.prompt_tokens else ""


def _recorded(row: Row) -> str:
    cached = row.planned.job.usage.cached_tokens
    return "–" if cached is None else f"{cached:,}"


def _prompt(row: Row) -> str:
    return f"{row.stats.prompt_tokens:,}{MARK if row.planned.padded_tokens else ''}"


_COLUMNS = (
    Column("#", 5, 0, lambda row: f"{row.planned.job.number}", "dim"),
    Column("line", 6, 9, lambda row: f"{row.planned.job.line}", "dim"),
    Column("prompt", 9, 0, _prompt),
    Column("cached", 9, 0, lambda row: f"{row.stats.cached_tokens:,}", "green"),
    Column("from disk", 10, 8, lambda row: f"{row.stats.cached_disk_tokens:,}"),
    Column("recorded", 9, 4, _recorded, "dim"),
    Column("new", 7, 0, lambda row: f"{row.stats.prefill_tokens:,}", "yellow"),
    Column("reused", 7, 2, _reused),
    Column("ttft", 8, 0, lambda row: seconds(row.stats.ttft_ms)),
    Column("uncached", 9, 1, _compared, "dim"),
    Column("ratio", 7, 1, _ratio),
    Column("answer", 7, 3, lambda row: f"{row.stats.completion_tokens:,}"),
    Column("rewound", 8, 5, lambda row: f"{row.stats.rewind_tokens:,}"),
    Column("restored", 9, 6, lambda row: row.stats.restore_kind),
    Column("read", 9, 7, lambda row: size(row.stats.restore_bytes)),
    Column("written", 9, 7, lambda row: size(row.stats.checkpoint_bytes)),
    Column("memory", 9, 8, lambda row: size(row.stats.peak_memory_bytes)),
)
_ALWAYS_THERE = ("#", "conv", "line", "prompt")
_WHY_WIDTH = 17
_PLANNED_ONLY = {"ttft": "est.", "cached": "reusable"}
_NOT_PLANNED = ("from disk", "rewound", "restored", "read", "written", "memory")


class Table:
    """The columns that fit into `width`, and the lines they make.

    timed          whether times are known, or estimated
    side_by_side   the conversations, if they run so: each row then has its conversation's number, and no line its name
    """

    def __init__(
        self,
        width: int,
        *,
        compared: bool = False,
        recorded: bool = False,
        planned: bool = False,
        timed: bool = True,
        side_by_side: Sequence[str] = (),
    ) -> None:
        self.width = max(NARROWEST, min(width, WIDEST))
        left_out = set() if compared else {"uncached", "ratio"}
        left_out |= set() if recorded else {"recorded"}
        left_out |= set(_NOT_PLANNED) if planned else set()
        left_out |= set() if timed else {"ttft"}
        self.side_by_side = side_by_side
        numbers = {name: number for number, name in enumerate(side_by_side, 1)}
        beside = (
            Column("conv", 5, 0, lambda row: f"{numbers[row.planned.job.conversation]}", "cyan"),
            Column("at", 8, 1, lambda row: seconds(1000 * row.started_s), "dim"),
        )
        columns = (_COLUMNS[0], *beside, *_COLUMNS[1:]) if side_by_side else _COLUMNS
        wanted = [column for column in columns if column.title not in left_out]
        self.columns = _fitting(wanted, self.width - _WHY_WIDTH - 2)
        self._titles = _PLANNED_ONLY if planned else {}
        self._conversation: str | None = None

    def head(self) -> Line:
        """The column titles."""
        cells = (self._titles.get(c.title, c.title).rjust(c.width) for c in self.columns)
        return [Span("".join(cells) + "  what changed", "bold")]

    def rows(self, row: Row) -> list[Line]:
        """A row's line, after its conversation's name where that isn't the last row's."""
        job = row.planned.job
        if self.side_by_side:
            return [self._row(row)]
        lines = [] if job.conversation == self._conversation else [[Span(self._name(job), "cyan")]]
        self._conversation = job.conversation
        return [*lines, self._row(row)]

    def _row(self, row: Row) -> Line:
        ran = row.outcome == "run"
        spans = []
        for column in self.columns:
            cell = column.cell(row) if ran or column.title in _ALWAYS_THERE else ""
            spans.append(Span(cell.rjust(column.width), column.style))
        words = self._why(row)
        return [*spans, Span(f"  {words}".rstrip(), "" if ran else "red")]

    def _why(self, row: Row) -> str:
        room = self.width - sum(column.width for column in self.columns) - 2
        if row.outcome != "run":
            words = _OUTCOMES[row.outcome]
            return cut(f"{words} ({plain(row.why)})" if row.why and room > 2 * _WHY_WIDTH else words, room)
        words = WORDS[row.stats.divergence]
        if row.stats.shortfall_reason != "none":
            words = f"{words}, {row.stats.shortfall_reason.replace('_', ' ')}"
        return cut(words, room)

    def _name(self, job: Job) -> str:
        kind = "" if job.kind == "main" else f"{job.kind} "
        title = f" · {plain(job.title)}" if job.title else ""
        of = f" of {plain(job.parent)}" if job.parent else ""
        name = cut(f"── {kind}{plain(job.conversation)}{of}{title} ", self.width)
        return name + "─" * (self.width - cell_len(name))

    def subtotal(self, name: str, rows: Sequence[Row]) -> Line:
        """One conversation's sums."""
        totals = Totals.of(rows)
        hit = "–" if totals.hit_rate is None else f"{100 * totals.hit_rate:.0f} %"
        noun = "request" if totals.turns == 1 else "requests"
        words = (
            f"{totals.turns:>4} {noun:<8}{totals.prompt_tokens:>12,} prompt{totals.cached_tokens:>12,} cached"
            f"{totals.prefill_tokens:>10,} new{hit:>7}"
        )
        if len(words) + 12 > self.width:
            words = f"{totals.turns:>4}{totals.prompt_tokens:>11,}{totals.cached_tokens:>11,}{hit:>6}"
        room = self.width - len(words)
        return [Span(set_cell_size(cut(plain(name), room), room)), Span(words)]


def _fitting(columns: list[Column], room: int) -> list[Column]:
    """The columns of the lowest ranks that fit together, in the order in which they stand."""
    chosen: list[Column] = []
    for column in sorted(columns, key=lambda one: one.rank):
        if sum(one.width for one in chosen) + column.width > room:
            break
        chosen.append(column)
    return [column for column in columns if column in chosen]


def plain(text: str | None) -> str:
    """Text of a file on one line: no escape sequence, no control character."""
    return " ".join(sanitize(text or "").split())
