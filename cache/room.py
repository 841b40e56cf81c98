"""Finding room in the scratch file for a record, by evicting others, never past the budget."""

from __future__ import annotations

from collections.abc import Collection

from .counters import Counters
from .index import Entry, Index
from .scratch import Extent, ScratchFile


class Room:
    """The file's budget in bytes of its length. The caller holds the store's lock."""

    def __init__(self, index: Index, scratch: ScratchFile, counters: Counters, budget: int) -> None:
        self.index = index
        self.scratch = scratch
        self.counters = counters
        self.budget = budget

    def make(self, entry: Entry) -> Extent | None:
        """An extent for a pending entry, evicting the least recently used until it fits.

        Spared: pinned entries, and what stands at the entry's place and on the chain before it, without which it
        would be useless. None, with nothing evicted, if it can't fit beside those. OSError if the file can't grow.
        """
        extent = self.scratch.allocate(entry.nbytes, self.budget)
        if extent is not None:
            return extent
        places = self.index.chain(entry.header.place)
        spared = {kept for place in places for kept in self.index.groups(place).values()}
        if not self._can_fit(entry.nbytes, spared):
            return None
        for victim in self.index.victims(spared):
            self._evict(victim)
            extent = self.scratch.allocate(entry.nbytes, self.budget)
            if extent is not None:
                return extent
        return None

    def _can_fit(self, length: int, spared: Collection[Entry]) -> bool:
        """Whether a gap of `length` would be there if all but the pinned and the spared were gone."""
        end = 0
        for extent in sorted(entry.extent for entry in self.index.pinned | set(spared) if entry.extent is not None):
            if extent.offset - end >= length:
                return True
            end = extent.end
        return self.budget - end >= length

    def shrink(self, target: int) -> int:
        """Evict until the file is at most `target` bytes long or only pinned entries are left; its length then."""
        for victim in self.index.victims(()):
            if self.scratch.length <= target:
                break
            self._evict(victim)
        return self.scratch.length

    def _evict(self, victim: Entry) -> None:
        self.index.remove(victim)
        self.counters.evictions += 1
