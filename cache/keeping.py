"""What a store does so that a later program finds its records: takes them in, notes their use, leaves them behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .index import Index
from .kept import KeptFile
from .room import Room

_NOTES_EVERY_S: Final = 30.0


class Keeping:
    """One kept file in the hands of a store. The caller holds the store's lock."""

    def __init__(self, kept: KeptFile, room: Room, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept = kept
        self._room = room
        self._clock = clock
        self._noted_at = -_NOTES_EVERY_S

    @property
    def _index(self) -> Index:
        return self._room.index

    def adopt(self) -> None:
        """Take in what an earlier program left, in the order in which it was needed, within the budget."""
        for entry in sorted(self._kept.entries, key=lambda entry: (entry.used_at, -entry.header.position)):
            if entry.header.group in self._index.groups(entry.header.place):
                assert entry.extent is not None
                self._room.scratch.free(entry.extent)  # one of two of the same, from before a crash
            else:
                self._index.adopt(entry)
        self.note()
        self._room.shrink(self._room.budget)

    def note(self) -> None:
        """Forget what was deleted elsewhere meanwhile, and now and then write down who uses what."""
        deleted = self._kept.take_deleted()
        for user in deleted:
            self._index.leave(user)
        if deleted or self._clock() - self._noted_at >= _NOTES_EVERY_S:
            self._noted_at = self._clock()
            self._kept.save(self._index)

    def end(self) -> None:
        """Leave the file to later programs, or take it away: if it is empty, or if what was deleted might be found."""
        self.note()
        if self._room.scratch.tainted or not len(self._index):
            with suppress(OSError):
                self._kept.remove()
        else:
            self._kept.save(self._index)
        for entry in self._index:
            entry.extent = None  # so that letting go of it leaves the record where it is
