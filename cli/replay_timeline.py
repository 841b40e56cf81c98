"""The timeline of a replay whose conversations ran side by side: a line for each, a cell for each slice of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from ..transcripts.overlap import Phase, PhaseKind, phases
from ..transcripts.rows import Result
from .line_breaking import cut
from .replay_table import Line, Span, plain
from .stats_line import seconds

_MOST_LINES = 32
_NAME = 20
_CELLS: dict[PhaseKind, Span] = {
    "answer": Span("█", "green"),
    "prefill": Span("▓", "yellow"),
    "waiting": Span("·", "dim"),
    "tools": Span("-", "cyan"),
}
_WORDS: dict[PhaseKind, str] = {"waiting": "waiting", "prefill": "prefill", "answer": "answer", "tools": "tools"}


def timeline(result: Result, conversations: Sequence[str], width: int) -> Iterator[Line]:
    """The lines, the conversations numbered in the order given."""
    end = result.wall_s
    found = phases(result.rows)
    if end <= 0 or not found:
        return
    shown = {phase.kind for phase in found}
    room = width - 5 - 2 - _NAME - 1
    yield []
    scale = f"0 s{seconds(1000 * end).rjust(room - 3)}"
    yield [Span("timeline".ljust(width - room), "bold"), Span(scale, "dim")]
    for number, name in list(enumerate(conversations, 1))[:_MOST_LINES]:
        own = [phase for phase in found if phase.conversation == name]
        if own:
            label = set_cell_size(cut(plain(name), _NAME), _NAME)
            yield [Span(f"{number:>5}  ", "dim"), Span(f"{label} "), *cells(own, end, room)]
    if len(conversations) > _MOST_LINES:
        yield [Span(f"       and {len(conversations) - _MOST_LINES:,} more", "dim")]
    legend: Line = [Span(" " * (width - room))]
    for kind, words in _WORDS.items():
        if kind in shown:
            legend += [_CELLS[kind], Span(f" {words}   ", "dim")]
    yield legend


def cells(own: Sequence[Phase], end: float, room: int) -> Line:
    """One conversation's time in `room` cells, each what took most of its slice."""
    slice_s = end / room
    spans: Line = []
    for index in range(room):
        start, stop = index * slice_s, (index + 1) * slice_s
        spent: dict[PhaseKind, float] = {}
        for phase in own:
            share = min(stop, phase.end_s) - max(start, phase.start_s)
            if share > 0:
                spent[phase.kind] = spent.get(phase.kind, 0.0) + share
        spans.append(_CELLS[max(spent, key=lambda kind: spent[kind])] if spent else Span(" "))
    return _merged(spans)


def _merged(spans: Line) -> Line:
    """Neighbours of one style as one span."""
    out: Line = []
    for span in spans:
        if out and out[-1].style == span.style:
            out[-1] = Span(out[-1].text + span.text, span.style)
        else:
            out.append(span)
    assert sum(cell_len(span.text) for span in out) == len(spans)
    return out
