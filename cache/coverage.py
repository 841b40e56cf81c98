"""What is known about one prompt before a position is chosen: what memory shares with it, what records hold of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
    """The rows of one group that records hold along one prompt: per block, (how many leading elements fit, the record).

    A record may lack the first rows of its block: another one holds them, or nothing does and they can't be had.
    """

    def __init__(self, group: RowGroup) -> None:
        self.group = group
        self.blocks: list[list[tuple[int, Entry]]] = []

    def covers(self, position: int) -> bool:
        """Whether records hold every row that a restore to `position` needs."""
        wanted = self._blocks_for(position)
        unsure = range(max(wanted.start, len(self._unbroken)), wanted.stop)
        return all(self._pieces(block, *self._rows_of(block, position)) is not None for block in unsure)

    def pieces(self, position: int) -> tuple[Piece, ...]:
        """The records to read for `position`, in order of their rows. Must hold: covers(position)."""
        out: list[Piece] = []
        for block in self._blocks_for(position):
            rows = self._rows_of(block, position)
            is_known = block < len(self._unbroken) and rows == _all_rows(block)
            found = self._unbroken[block] if is_known else self._pieces(block, *rows)
            assert found is not None
            out += found
        return tuple(out)

    @cached_property
    def _unbroken(self) -> list[list[Piece]]:
        """Those leading blocks that are there with all their rows: what any position needs of them is there too."""
        out: list[list[Piece]] = []
        for block in range(len(self.blocks)):
            found = self._pieces(block, *_all_rows(block))
            if found is None:
                break
            out.append(found)
        return out

    def ends(self) -> Iterable[int]:
        """Every position up to which some record fits the prompt."""
        return (i * BLOCK + count for i, known in enumerate(self.blocks) for count, _ in known)

    def _blocks_for(self, position: int) -> range:
        return range(self.group.first_needed(position) // BLOCK, -(-position // BLOCK))

    def _rows_of(self, block: int, position: int) -> tuple[int, int]:
        """The rows of `block` that a restore to `position` needs."""
        start, end = _all_rows(block)
        return max(self.group.first_needed(position), start), min(position, end)

    def _pieces(self, block: int, start: int, end: int) -> list[Piece] | None:
        """Rows [start, end) of a block, from the fewest records; None if some are missing.

        From the end backwards: of the records that hold the row before `end`, the one that reaches back furthest.
        """
        known = self.blocks[block] if block < len(self.blocks) else []
        out: list[Piece] = []
        while start < end:
            fitting = [e for count, e in known if e.header.row_start < end <= block * BLOCK + count]
            if not fitting:
                return None
            entry = min(fitting, key=lambda one: (max(start, one.header.row_start), one.nbytes))
            out.insert(0, Piece(entry, max(start, entry.header.row_start), end))
            end = out[0].start
        return out


def _all_rows(block: int) -> tuple[int, int]:
    return block * BLOCK, (block + 1) * BLOCK


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
