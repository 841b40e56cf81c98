"""Holes in the scratch file are closed by writing the records behind them again, further down.

Evicted and deleted records leave holes that the next ones fill best-fit, which is enough while sizes are alike. A
recurrent state is a hundred times a block, and a deleted conversation leaves nothing to fill its holes with.
"""

from __future__ import annotations

from typing import Final

from .index import Entry
from .room import Room

MOST_WASTE: Final = 0.08
"""Of the live bytes: the file stays within 1.1 times those, with some of it for what is being written."""

LEAST_HOLES: Final = 1024 * 1024
"""Bytes of holes that are not worth a write."""


def next_move(room: Room) -> Entry | None:
    """The record to write again, None while holes are few. The caller holds the store's lock.

    It is the one behind the last hole: each move takes a record further down, so moving comes to an end, and what is
    moved most is what lies at the file's end. Pinned records stay where they are.
    """
    free = room.scratch.free_extents()
    holes = sum(extent.length for extent in free)
    if holes <= max(LEAST_HOLES, MOST_WASTE * (room.scratch.length - holes)):
        return None
    behind = {extent.end: extent for extent in free}
    found = [e for e in room.index if e.extent is not None and e.extent.offset in behind and not e.pins]
    return max(found, key=_offset, default=None)


def _offset(entry: Entry) -> int:
    assert entry.extent is not None
    return entry.extent.offset
