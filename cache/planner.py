"""Finds the largest position that every layer can be restored to, and what each of them is restored from.

A plan never mixes positions: all layers or none. It looks at two sources, the live sequence in memory and the
records of the store, group by group: global layers may be trimmed in memory while local and recurrent ones come
from records. Entries of a plan are pinned before any of them is read; the holder of the plan unpins them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .coverage import Coverage, Piece, Prospect
from .index import Entry
from .keys import BLOCK, Ids, Span
from .layers import Layout
from .live import LiveCache
from .store import Store
from .trie import common_prefix

_BLOCK_BYTES = 4 * BLOCK
Shortfall = Literal["none", "evicted", "no_anchor", "image"]


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
        """Whether the position is a block edge ("block" for the user, else "anchor")."""
        return self.position % BLOCK == 0


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
        """The usual case, without comparing: the very block is there, with all rows of all groups, or nothing is.

        Its records may lack the block's first rows, if those before them end right there.
        """
        assert self._store is not None
        siblings = self._store.below(parent)
        known = siblings.get(exact) if len(exact) == _BLOCK_BYTES else None
        if not siblings:
            for cover in coverage.values():
                cover.blocks.append([])
            return True
        if known is None or (self._layout.states is not None and len(siblings) > 1):
            return False
        found = [_in_one_line(siblings, exact, name, block * BLOCK) for name in coverage]
        if not all(found):
            return False
        for cover, line in zip(coverage.values(), found, strict=True):
            cover.blocks.append(line)
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


def _in_one_line(
    siblings: Mapping[bytes, Mapping[str, Entry]], block: bytes, group: str, edge: int
) -> list[tuple[int, Entry]]:
    """The records that hold a whole block, each from where the one before it ends: nothing if one is missing."""
    line: list[tuple[int, Entry]] = []
    count = BLOCK
    while count > 0:
        entry = siblings.get(block[: 4 * count], {}).get(group)
        if entry is None:
            return []
        line.append((count, entry))
        count = entry.header.row_start - edge
    return line
