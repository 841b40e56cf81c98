"""What is known about one prompt before a position is chosen: what memory shares with it, what records hold of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from .index import Entry
from .keys import BLOCK, Ids, Span
from .layers import RowGroup
from .live import LiveCache


@dataclass(frozen=True)
class Piece:
    """Rows [start, end) of one record."""

    entry: Entry
    start: int
    end: int


class Coverage:
    """The rows of one group that records hold along one prompt: per block, (how many leading rows fit, the record).

    A window's record may lack the first rows of its block, so several records of one block can matter.
    """

    def __init__(self, group: RowGroup) -> None:
        self.group = group
        self.blocks: list[list[tuple[int, Entry]]] = []

    def covers(self, position: int) -> bool:
        """Whether records hold every row that a restore to `position` needs."""
        wanted = self._blocks_for(position)
        unsure = range(max(wanted.start, self._unbroken), wanted.stop)
        return all(self._record(block, position) is not None for block in unsure)

    def pieces(self, position: int) -> tuple[Piece, ...]:
        """The records to read for `position`. Must hold: covers(position)."""
        out, first = [], self.group.first_needed(position)
        for block in self._blocks_for(position):
            entry = self.blocks[block][0][1] if block < self._unbroken else self._record(block, position)
            assert entry is not None
            start = block * BLOCK
            out.append(Piece(entry, max(first, start), min(position, start + BLOCK)))
        return tuple(out)

    @cached_property
    def _unbroken(self) -> int:
        """How many leading blocks are there with all their rows: what any position needs of them is there too."""
        return sum(1 for _ in takewhile(self._is_whole, enumerate(self.blocks)))

    @staticmethod
    def _is_whole(numbered: tuple[int, list[tuple[int, Entry]]]) -> bool:
        block, known = numbered
        return bool(known) and known[0][0] == BLOCK and known[0][1].header.row_start <= block * BLOCK

    def ends(self) -> Iterable[int]:
        """Every position up to which some record fits the prompt."""
        return (i * BLOCK + count for i, known in enumerate(self.blocks) for count, _ in known)

    def _blocks_for(self, position: int) -> range:
        return range(self.group.first_needed(position) // BLOCK, -(-position // BLOCK))

    def _rows_of(self, block: int, position: int) -> tuple[int, int]:
        """The rows of `block` that a restore to `position` needs."""
        first = self.group.first_needed(position)
        return max(first, block * BLOCK), min(position, (block + 1) * BLOCK)

    def _record(self, block: int, position: int) -> Entry | None:
        """A record that holds those rows."""
        start, end = self._rows_of(block, position)
        known = self.blocks[block] if block < len(self.blocks) else []
        return next((e for count, e in known if block * BLOCK + count >= end and e.header.row_start <= start), None)


@dataclass(frozen=True)
class Prospect:
    """All that is known about one prompt before choosing: what memory shares with it and what records hold of it."""

    ids: Ids
    live: LiveCache | None
    shared: int  # ids that the live sequence shares with the prompt
    coverage: dict[str, Coverage]
    states: dict[int, Entry]
    pictures: Sequence[Span] = ()

    def outside(self, position: int) -> int:
        """`position`, or the start of the picture that it lies inside."""
        return next((span.start for span in self.pictures if span.start < position < span.end), position)

    def rows_live(self, group: RowGroup, position: int) -> bool:
        """Whether memory alone can put the group at `position`."""
        return self.live is not None and position <= self.shared and self.live.rows_reach(group, position)

    def rows_ok(self, group: RowGroup, position: int) -> bool:
        """Whether the group can stand at `position`, from memory or from records."""
        return self.rows_live(group, position) or self.coverage[group.name].covers(position)

    def state_live(self, position: int) -> bool:
        """Whether memory alone can put the recurrent layers at `position`."""
        return self.live is not None and position <= self.shared and self.live.state_at(position)
