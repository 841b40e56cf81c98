"""Finding room in the scratch file for a record, by evicting others, never past the budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .counters import Counters, StoreStats
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

        Spared: pinned entries, and what the entry's place needs before it, without which it would be useless. None,
        with nothing evicted, if it can't fit beside those. OSError if the file can't grow.
        """
        extent = self.scratch.allocate(entry.nbytes, self.budget)
        if extent is not None:
            return extent
        spared = set(self.index.needed(entry.header.place))
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
        self.scratch.give_back()
        for victim in self.index.victims(()):
            if self.scratch.length <= target:
                break
            self._evict(victim)
        return self.scratch.length

    def _evict(self, victim: Entry) -> None:
        self.index.remove(victim)
        self.counters.evictions += 1

    def stats(self, queue_bytes: int, queue_limit: int, *, cooling: bool, is_kept: bool) -> StoreStats:
        """A snapshot of all counters."""
        counted, free = self.counters, self.scratch.free_extents()
        return StoreStats(
            records=len(self.index),
            record_bytes=self.index.record_bytes,
            file_bytes=self.scratch.length,
            file_bytes_peak=self.scratch.peak,
            pins=len(self.index.pinned),
            free_extents=len(free),
            free_bytes=sum(extent.length for extent in free),
            queue_bytes=queue_bytes,
            writes=counted.writes,
            bytes_written=counted.bytes_written,
            bytes_read=counted.bytes_read,
            evictions=counted.evictions,
            dropped=dict(counted.dropped),
            errors=counted.errors,
            expired=counted.expired,
            damaged=counted.damaged,
            is_kept=is_kept,
            budget_bytes=self.budget,
            queue_limit_bytes=queue_limit,
            cooling=cooling,
        )

    def check(self, in_flight: Sequence[Extent]) -> None:
        """Raise AssertionError unless records, those being written and holes tile the file, within the budget."""
        entries = (*self.index, *self.index.limbo)
        used = [entry.extent for entry in entries if entry.extent is not None]
        end = 0
        for extent in sorted((*used, *in_flight, *self.scratch.free_extents())):
            assert extent.offset == end, f"store: a gap or an overlap at {end}, before {extent}"
            end = extent.end
        assert end == self.scratch.length, f"store: extents end at {end} of {self.scratch.length} bytes"
        assert end <= self.budget, f"store: the file has {end} bytes, {self.budget} allowed"
