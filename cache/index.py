"""What is stored, by place and group of layers: found by parent, ordered for eviction, pinned while planned.

Every method expects its caller to hold `lock`, the store's only lock. An entry that is removed while pinned can't be
found any more, but keeps its bytes until the last pin goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from .keys import Place
from .records import RecordHeader
from .scratch import Extent


@dataclass(eq=False)
class Entry:
    """One record: in host memory (`payload`, one flat view per tensor) until the writer has put it at `extent`."""

    header: RecordHeader
    payload: tuple[memoryview, ...] | None = None
    priority: int = 0
    extent: Extent | None = None
    checksum: int = 0
    pins: int = 0
    live: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the record as stored."""
        return self.header.nbytes


_MOST_TOUCHES: Final = 4096


class Index:
    """Entries by place and group. `free` is called with the extent of each entry that is gone for good."""

    def __init__(self, free: Callable[[Extent], None]) -> None:
        self.lock = threading.RLock()
        self.record_bytes = 0
        self.pinned: set[Entry] = set()
        self.limbo: set[Entry] = set()
        self._free = free
        self._below: dict[bytes, dict[bytes, dict[str, Entry]]] = {}
        self._blocks: dict[bytes, Place] = {}
        self._parents: dict[bytes, bytes] = {}
        self._order: OrderedDict[Entry, None] = OrderedDict()
        self._touched: list[list[Place]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, the next to be evicted first."""
        self._settle()
        return iter(list(self._order))

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

    def insert(self, entry: Entry) -> None:
        """Make an entry findable. It and the chain it stands on become the last to be evicted."""
        place = entry.header.place
        groups = self._below.setdefault(place.parent, {}).setdefault(place.ids, {})
        if entry.header.group in groups:
            raise ValueError(f"a second record of {entry.header.group} at one place")
        groups[entry.header.group] = entry
        if place.is_block and len(groups) == 1:
            self._blocks[place.key] = place
        self.link(place)
        self._order[entry] = None
        self.record_bytes += entry.nbytes
        entry.live = True
        self.touch([place])

    def remove(self, entry: Entry) -> None:
        """Make an entry unfindable, then free its extent, at once or when its last pin goes."""
        if not entry.live:
            return
        place = entry.header.place
        siblings = self._below[place.parent]
        del siblings[place.ids][entry.header.group]
        if not siblings[place.ids]:
            del siblings[place.ids]
            if place.is_block:
                del self._blocks[place.key]
        if not siblings:
            del self._below[place.parent]
        del self._order[entry]
        self.record_bytes -= entry.nbytes
        entry.live = False
        if entry.pins:
            self.limbo.add(entry)
        else:
            self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        extent, entry.extent, entry.payload = entry.extent, None, None
        self.limbo.discard(entry)
        if extent is not None:
            self._free(extent)

    def publish(self, entry: Entry, extent: Extent, checksum: int) -> None:
        """The record is on disk: its host memory is let go. One that was removed meanwhile gives its extent back."""
        if not entry.live and not entry.pins:
            self._free(extent)
            return
        entry.extent, entry.checksum, entry.payload = extent, checksum, None

    def pin(self, entry: Entry) -> None:
        """Keep an entry's bytes where they are until as many unpins."""
        entry.pins += 1
        self.pinned.add(entry)

    def unpin(self, entry: Entry) -> None:
        """Undo one pin; ValueError if there is none."""
        if entry.pins < 1:
            raise ValueError("unpinned more often than pinned")
        entry.pins -= 1
        if not entry.pins:
            self.pinned.discard(entry)
            if not entry.live:
                self._let_go(entry)

    def chain(self, place: Place) -> Iterator[Place]:
        """The place, then the stored blocks before it, over holes, up to the root."""
        yield place
        key: bytes | None = place.parent
        while key is not None:
            if key in self._blocks:
                yield self._blocks[key]
            key = self._parents.get(key)

    def touch(self, places: Iterable[Place]) -> None:
        """Evict these and their chains last; of one chain, the suffix before the prefix.

        Only noted here: a chain is as long as its prompt, and most are touched again before anything is evicted.
        """
        self._touched.append(list(places))
        if len(self._touched) > _MOST_TOUCHES:
            self._settle()

    def _settle(self) -> None:
        """Bring the order up to date. The newest touch first, so that each place is met once, however often touched."""
        met: set[Place] = set()
        groups: list[list[Entry]] = []
        while self._touched:
            found: list[Place] = []
            for place in self._touched.pop():
                for above in self.chain(place):
                    if above in met:
                        break
                    met.add(above)
                    found.append(above)
            groups.append(sorted(self._at(found), key=_position, reverse=True))
        for entry in (entry for group in reversed(groups) for entry in group):
            self._order.move_to_end(entry)

    def demote(self, places: Iterable[Place]) -> None:
        """Evict these and what is stored after them, up to a hole, first; the suffix before the prefix."""
        self._settle()
        met: dict[Place, None] = {}
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in met:
                continue
            met[place] = None
            if place.is_block:
                key = place.key
                waiting.extend(Place(key, ids) for ids in self.children(key))
        for entry in sorted(self._at(met), key=_position):
            self._order.move_to_end(entry, last=False)

    def _at(self, places: Iterable[Place]) -> list[Entry]:
        return [entry for place in places for entry in self.groups(place).values()]

    def victims(self, spared: Collection[Entry]) -> Iterator[Entry]:
        """Entries on disk that may be evicted, in order: neither pinned nor spared."""
        self._settle()
        for entry in list(self._order):
            if entry.live and entry.extent is not None and not entry.pins and entry not in spared:
                yield entry

    def check(self) -> None:
        """Raise AssertionError at the first contradiction among the index's own maps."""
        found = set()
        for parent, siblings in self._below.items():
            assert siblings, "index: a parent without children"
            for ids, groups in siblings.items():
                place = Place(parent, ids)
                assert groups, "index: a place without records"
                assert not place.is_block or self._blocks.get(place.key) == place, "index: a block without its key"
                for group, entry in groups.items():
                    assert (entry.header.place, entry.header.group) == (place, group), "index: an entry misplaced"
                    assert entry.live, "index: an entry both removed and findable"
                    assert (entry.payload is None) != (entry.extent is None), "index: bytes in two places or none"
                    found.add(entry)
        blocks = {entry.header.place for entry in found if entry.header.place.is_block}
        assert set(self._blocks.values()) == blocks, "index: keys of blocks that are not stored"
        links = {place.key: place.parent for place in blocks}
        assert links.items() <= self._parents.items(), "index: a stored block without its link"
        assert found == set(self._order), "index: the eviction order lists other entries than the maps"
        assert self.record_bytes == sum(entry.nbytes for entry in found), "index: record bytes don't add up"
        known = found | self.limbo
        assert all(entry.pins >= 0 for entry in known), "index: fewer than no pins"
        assert {entry for entry in known if entry.pins} <= self.pinned, "index: a pinned entry not listed"
        assert all(entry.pins > 0 for entry in self.pinned), "index: an unpinned entry listed as pinned"
        assert all(entry.pins and not entry.live for entry in self.limbo), "index: limbo holds a live or unpinned entry"


def _position(entry: Entry) -> int:
    return entry.header.position
