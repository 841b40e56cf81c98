"""Which records stand where: by the block edge they follow, by their ids, by their group of layers.

The caller holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .keys import BLOCK, Place

if TYPE_CHECKING:
    from .index import Entry

_MANY = 1000
"""Places below one edge: among more, the at most 255 beginnings of a place are looked for one by one."""


class Places:
    """A map of entries, and the links that lead from a block edge to the one before it."""

    def __init__(self) -> None:
        self._below: dict[bytes, dict[bytes, dict[str, Entry]]] = {}
        self._blocks: dict[bytes, Place] = {}
        self._parents: dict[bytes, bytes] = {}

    def groups(self, place: Place) -> Mapping[str, Entry]:
        """What is stored at a place, by group."""
        return self._below.get(place.parent, {}).get(place.ids, {})

    def children(self, parent: bytes) -> Mapping[bytes, Mapping[str, Entry]]:
        """All places below a block edge: their ids, and what is stored there."""
        return self._below.get(parent, {})

    def link(self, place: Place) -> None:
        """Remember which edge a block starts from, stored or not, so that a hole doesn't hide the chain before it.

        Links stay: a few bytes for each block ever met, far less than its ids in the trie.
        """
        if place.is_block:
            self._parents[place.key] = place.parent

    def add(self, entry: Entry) -> None:
        """Make an entry findable; ValueError if its group has one at its place already."""
        place = entry.header.place
        groups = self._below.setdefault(place.parent, {}).setdefault(place.ids, {})
        if entry.header.group in groups:
            raise ValueError(f"a second record of {entry.header.group} at one place")
        groups[entry.header.group] = entry
        if place.is_block and len(groups) == 1:
            self._blocks[place.key] = place
        self.link(place)

    def drop(self, entry: Entry) -> None:
        """Make it unfindable. Must hold: it was added."""
        place = entry.header.place
        siblings = self._below[place.parent]
        del siblings[place.ids][entry.header.group]
        if not siblings[place.ids]:
            del siblings[place.ids]
            if place.is_block:
                del self._blocks[place.key]
        if not siblings:
            del self._below[place.parent]

    def above(self, place: Place) -> Iterator[tuple[int, Place]]:
        """The place, then all that is stored before it, over holes, up to the root; with each its distance.

        The distance counts positions from there to `place`; that of `place` itself is 0. Places inside a block, whose
        records hold its first rows, come right after the place that they lead to, the longest first.
        """
        yield 0, place
        yield from ((place.length - inside.length, inside) for inside in self.inside(place))
        distance, key = place.length, place.parent
        while True:
            if key in self._blocks:
                block = self._blocks[key]
                yield distance, block
                yield from ((distance + BLOCK - inside.length, inside) for inside in self.inside(block))
            if key not in self._parents:
                return
            key = self._parents[key]
            distance += BLOCK

    def inside(self, place: Place) -> list[Place]:
        """Stored places of the same block that lead to this one, the longest first."""
        siblings, whole = self.children(place.parent), place.ids
        if len(siblings) > _MANY:
            found = [whole[:size] for size in range(len(whole) - 4, 0, -4) if whole[:size] in siblings]
        else:
            found = sorted((ids for ids in siblings if _begins(ids, whole)), key=len, reverse=True)
        return [Place(place.parent, ids) for ids in found]

    def beyond(self, place: Place) -> list[Place]:
        """Stored places of the same block that this one leads to."""
        siblings = self.children(place.parent) if not place.is_block else ()
        return [Place(place.parent, ids) for ids in siblings if _begins(place.ids, ids)]

    def chain(self, place: Place) -> Iterator[Place]:
        """The places of `above`."""
        return (above for _, above in self.above(place))

    def following(self, place: Place) -> Iterator[Place]:
        """The place and every place stored after it, up to a hole."""
        waiting = [place]
        while waiting:
            at = waiting.pop()
            yield at
            if at.is_block:
                key = at.key
                waiting.extend(Place(key, ids) for ids in self.children(key))

    def check(self) -> set[Entry]:
        """Every entry. Raises AssertionError at the first contradiction among the maps."""
        found = set()
        for parent, siblings in self._below.items():
            assert siblings, "index: a parent without children"
            for ids, groups in siblings.items():
                place = Place(parent, ids)
                assert groups, "index: a place without records"
                assert not place.is_block or self._blocks.get(place.key) == place, "index: a block without its key"
                for group, entry in groups.items():
                    assert (entry.header.place, entry.header.group) == (place, group), "index: an entry misplaced"
                    found.add(entry)
        blocks = {entry.header.place for entry in found if entry.header.place.is_block}
        assert set(self._blocks.values()) == blocks, "index: keys of blocks that are not stored"
        links = {place.key: place.parent for place in blocks}
        assert links.items() <= self._parents.items(), "index: a stored block without its link"
        return found


def _begins(ids: bytes, longer: bytes) -> bool:
    return len(ids) < len(longer) and longer.startswith(ids)
