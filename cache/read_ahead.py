"""Telling the disk what will be read, so that it brings that while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from .scratch import Extent, ScratchFile

AHEAD_BYTES: Final = 64 * 1024 * 1024
"""How far ahead of what is being read the disk is told what comes."""

Item = TypeVar("Item")


def announce(scratch: ScratchFile, extents: Iterable[Extent]) -> None:
    """Have the disk begin with the first of these, in the file's order."""
    ahead = 0
    for extent in sorted(extents):
        if ahead >= AHEAD_BYTES:
            break
        scratch.advise(extent)
        ahead += extent.length


class Walk(Generic[Item]):
    """What is stored, in the file's order, each taken once; the disk is told what comes while others are checked."""

    def __init__(self, stored: Sequence[tuple[Extent, Item]], scratch: ScratchFile) -> None:
        self._stored = stored
        self._scratch = scratch
        self._lock = threading.Lock()
        self._taken = self._told = 0
        self._ahead = 0  # bytes told past the last record taken

    def take(self) -> tuple[Extent, Item] | None:
        """The next, None at the end. Any thread."""
        with self._lock:
            if self._taken == len(self._stored):
                return None
            item = self._stored[self._taken]
            self._taken += 1
            self._told, self._ahead = max(self._told, self._taken), max(0, self._ahead - item[0].length)
            while self._told < len(self._stored) and self._ahead < AHEAD_BYTES:
                self._scratch.advise(self._stored[self._told][0])
                self._ahead += self._stored[self._told][0].length
                self._told += 1
            return item
