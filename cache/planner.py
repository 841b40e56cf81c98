"""Finds the largest position that every layer can be restored to, and what each of them is restored from.

A plan never mixes positions: all layers or none. It looks at two sources, the live sequence in memory and the
records of the store, group by group: global layers may be trimmed in memory while local and recurrent ones come
from records. Entries of a plan are pinned before any of them is read; the holder of the plan unpins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Literal

from .index import Entry
from .keys import BLOCK, Ids, Span
from .layers import Layout, RowGroup
from .live import LiveCache
from .store import Store
from .trie import common_prefix

_BLOCK_BYTES = 4 * BLOCK
Shortfall = Literal["none", "evicted", "no_anchor", "image"]


@dataclass(frozen=True)
class Piece:
    """Rows [start, end) of one record."""

    entry: Entry
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """Where to restore to and from what. `rows` maps a group's name to its pieces, or to None for "trim in memory".

    `state` is the record of the recurrent layers, None where they come from memory or don't exist.
    """

    position: int
    rows: dict[str, tuple[Piece, ...] | None] = field(default_factory=dict)
    state: Entry | None = None
    uses_live: bool = False
    reason: Shortfall = "none"

    @property
    def entries(self) -> list[Entry]:
        """Every record that the plan reads."""
        found = [piece.entry for pieces in self.rows.values() if pieces for piece in pieces]
        return found + ([self.state] if self.state is not None else [])

    @property
    def disk_tokens(self) -> int:
        """Positions of which at least one layer comes from a record."""
        if self.state is not None:
            return self.position
        starts = [pieces[0].start for pieces in self.rows.values() if pieces]
        return self.position - min(starts) if starts else 0

    @property
    def at_edge(self) -> bool:
        """Whether every record read is a whole block ("block" for the user, else "anchor")."""
        return self.position % BLOCK == 0 and all(entry.header.position % BLOCK == 0 for entry in self.entries)


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


class Planner:
    """Plans against one store (None: memory only) and one layout."""

    def __init__(self, store: Store | None, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def plan(
        self,
        ids: Ids,
        keys: list[bytes],
        live: LiveCache | None,
        limit: int,
        common: int,
        pictures: Sequence[Span] = (),
    ) -> Plan:
        """The best plan for `ids` at a position <= `limit`; its entries are pinned.

        keys      the chain keys of `ids` (key_0 first)
        common    the longest prefix that was ever fed, for the reason why not more
        pictures  those of `ids`: no position inside one is ever chosen
        """
        if self._store is None:
            return self._choose(self._look(ids, keys, live, pictures), limit, common, lambda entries: None)
        with self._store.lock:  # look-up and pins are one step: nothing may be evicted in between
            return self._choose(self._look(ids, keys, live, pictures), limit, common, self._store.pin)

    def _look(self, ids: Ids, keys: list[bytes], live: LiveCache | None, pictures: Sequence[Span]) -> Prospect:
        shared = common_prefix(ids, live.ids) if live is not None else 0
        coverage = {group.name: Coverage(group) for group in self._layout.rows}
        states: dict[int, Entry] = {}
        if self._store is not None:
            elements = ids.astype("<i4", copy=False).tobytes()
            for block, parent in enumerate(keys):
                exact = elements[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES]
                if not self._take_whole(parent, block, exact, coverage, states):
                    self._look_below(parent, block, ids, coverage, states)
        return Prospect(ids, live, shared, coverage, states, pictures)

    def _take_whole(
        self, parent: bytes, block: int, exact: bytes, coverage: dict[str, Coverage], states: dict[int, Entry]
    ) -> bool:
        """The usual case, without comparing: the very block is there, with all rows of all groups, or nothing is."""
        assert self._store is not None
        siblings = self._store.below(parent)
        known = siblings.get(exact) if len(exact) == _BLOCK_BYTES else None
        if not siblings:
            for cover in coverage.values():
                cover.blocks.append([])
            return True
        if known is None or (self._layout.states is not None and len(siblings) > 1):
            return False
        found = [known.get(name) for name in coverage]
        whole = [entry for entry in found if entry is not None and entry.header.row_start <= block * BLOCK]
        if len(whole) < len(found):
            return False
        for cover, entry in zip(coverage.values(), whole, strict=True):
            cover.blocks.append([(BLOCK, entry)])
        if self._layout.states is not None and self._layout.states.name in known:
            states[(block + 1) * BLOCK] = known[self._layout.states.name]
        return True

    def _look_below(
        self, parent: bytes, block: int, ids: Ids, coverage: dict[str, Coverage], states: dict[int, Entry]
    ) -> None:
        assert self._store is not None
        start = block * BLOCK
        found: dict[str, list[tuple[int, Entry]]] = {name: [] for name in coverage}
        for match in self._store.lookup(parent, ids[start : start + BLOCK]):
            for name, entry in match.groups.items():
                if name in found:
                    found[name].append((match.equal, entry))
                elif match.is_whole:  # a recurrent state belongs to exactly its position
                    states[start + match.length] = entry
        for name, cover in coverage.items():
            cover.blocks.append(sorted(found[name], key=lambda known: -known[0]))

    def _choose(self, prospect: Prospect, limit: int, common: int, pin: Callable[[list[Entry]], None]) -> Plan:
        limit = min(limit, len(prospect.ids))
        for position in sorted(self._candidates(prospect, limit), reverse=True):
            if all(prospect.rows_ok(group, position) for group in self._layout.rows):
                plan = self._build(prospect, position, self._reason(prospect, position, min(common, limit)))
                pin(plan.entries)
                return plan
        return Plan(0, reason=self._reason(prospect, 0, min(common, limit)))

    def _candidates(self, prospect: Prospect, limit: int) -> set[int]:
        """Positions where some group's reach ends; the best position is always one of them.

        Each group's restorable positions are a union of ranges, so the largest common one is the end of a range,
        or the limit, or the start of the picture that one of those lies inside. Recurrent layers stand at exact
        positions only.
        """
        if self._layout.states is not None:
            found = {p for p in prospect.states if p <= limit}
            if prospect.live is not None:
                memory = {prospect.live.length, *(held.position for held in prospect.live.states)}
                found |= {p for p in memory if p <= min(limit, prospect.shared)}
            return {p for p in found if prospect.outside(p) == p} - {0}
        found = {limit, min(prospect.shared, limit)}
        for cover in prospect.coverage.values():
            found.update(min(end, limit) for end in cover.ends())
        return {prospect.outside(p) for p in found} - {0}

    def _build(self, prospect: Prospect, position: int, reason: Shortfall) -> Plan:
        rows: dict[str, tuple[Piece, ...] | None] = {}
        for group in self._layout.rows:
            live = prospect.rows_live(group, position)
            rows[group.name] = None if live else prospect.coverage[group.name].pieces(position)
        state = None
        state_live = self._layout.states is None or prospect.state_live(position)
        if not state_live:
            state = prospect.states[position]
        uses_live = any(pieces is None for pieces in rows.values()) or (self._layout.states is not None and state_live)
        return Plan(position, rows, state, uses_live, reason)

    def _reason(self, prospect: Prospect, position: int, wanted: int) -> Shortfall:
        """Why `position` falls short of what was once fed: whole blocks of it were evicted, or there is no anchor."""
        if position >= wanted:
            return "none"
        if position >= prospect.outside(wanted):
            return "image"
        # Past the last edge nothing may have been written at all: a reply that the template drops isn't.
        edge = wanted // BLOCK * BLOCK
        for group in self._layout.rows:
            if group.window is None and edge > position and not prospect.rows_ok(group, edge):
                return "evicted"
        return "no_anchor"
