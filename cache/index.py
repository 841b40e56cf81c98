"""What is stored: found by place and group, ordered for eviction, pinned while planned, used by conversations.

Every method expects its caller to hold `lock`, the store's only lock. An entry that is removed while pinned can't be
found any more, but keeps its bytes until the last pin goes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .keys import Place
from .order import Order
from .places import Places
from .records import RecordHeader
from .scratch import Extent


@dataclass(eq=False)
class Entry:
    """One record: in host memory (`payload`, one flat view per tensor) until the writer has put it at `extent`.

    users     the conversations that wrote, found or restored it
    used_at   when it was last needed, in seconds of the index's clock
    secret    whether its bytes are to be erased before their extent is free
    """

    header: RecordHeader
    payload: tuple[memoryview, ...] | None = None
    priority: int = 0
    extent: Extent | None = None
    checksum: int = 0
    pins: int = 0
    live: bool = False
    users: set[str] = field(default_factory=set)
    used_at: float = 0.0
    secret: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the record as stored."""
        return self.header.nbytes


class Index:
    """Entries by place and group. `free` is called with the extent of each entry that is gone for good.

    erase     is called before that with the extent of an entry that was deleted with its conversation
    reaches   for each group of layers that doesn't need every block before a position: how many positions it needs
    now       seconds that idle records are counted in
    """

    def __init__(
        self,
        free: Callable[[Extent], None],
        reaches: Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
        erase: Callable[[Extent], None] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.record_bytes = 0
        self.pinned: set[Entry] = set()
        self.limbo: set[Entry] = set()
        self.users: dict[str, set[Entry]] = {}
        self._free = free
        self._erase = erase
        self._now = now
        self._places = Places()
        self._order = Order(self._places, reaches or {}, now)
        self.groups = self._places.groups
        self.children = self._places.children
        self.link = self._places.link
        self.chain = self._places.chain
        self.needed = self._order.needed
        self.demote = self._order.demote

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, the next to be evicted first."""
        return iter(self._order)

    def insert(self, entry: Entry) -> None:
        """Make an entry findable. It and what it needs before it become the last to be evicted."""
        self.adopt(entry)
        self.touch([entry.header.place])

    def adopt(self, entry: Entry) -> None:
        """Make an entry of an earlier program findable, as one that nobody has needed since."""
        self._places.add(entry)
        self._order.add(entry)
        self.record_bytes += entry.nbytes
        entry.live = True
        for user in entry.users:
            self.users.setdefault(user, set()).add(entry)

    def remove(self, entry: Entry) -> None:
        """Make an entry unfindable, then free its extent, at once or when its last pin goes."""
        if not entry.live:
            return
        self._places.drop(entry)
        self._order.drop(entry)
        self.record_bytes -= entry.nbytes
        entry.live = False
        for user in entry.users:
            self._part(user, entry)
        if entry.pins:
            self.limbo.add(entry)
        else:
            self._let_go(entry)

    def _part(self, user: str, entry: Entry) -> None:
        used = self.users[user]
        used.discard(entry)
        if not used:
            del self.users[user]

    def _let_go(self, entry: Entry) -> None:
        extent, entry.extent, entry.payload = entry.extent, None, None
        self.limbo.discard(entry)
        if extent is not None:
            self._give_back(entry, extent)

    def _give_back(self, entry: Entry, extent: Extent) -> None:
        if entry.secret and self._erase is not None:
            self._erase(extent)
        self._free(extent)

    def publish(self, entry: Entry, extent: Extent, checksum: int) -> None:
        """The record is on disk: its host memory is let go. One that was removed meanwhile gives its extent back."""
        if not entry.live and not entry.pins:
            self._give_back(entry, extent)
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

    def touch(self, places: Iterable[Place], entries: Iterable[Entry] = ()) -> None:
        """Evict what these places need, and these entries, last; of one chain, the suffix before the prefix."""
        self._order.touch(places, entries)

    def holders(self, place: Place, group: str, rows: tuple[int, int], user: str) -> tuple[int, list[Entry]]:
        """How far records hold `rows` [start, end) of a group, of which the last leads to the place; and which do.

        Those at the place and at places inside it hold nothing but what leads here. A longer one holds words of
        whoever wrote it, too, and is deleted with them: it counts only if the user is among its own (or has no name).
        """
        inner = [self.groups(one).get(group) for one in (place, *self._places.inside(place))]
        at, used = _in_turn(rows, inner)
        if at < rows[1]:
            longer = (self.groups(one).get(group) for one in self._places.beyond(place))
            allowed = [entry for entry in longer if entry is not None and (not user or user in entry.users)]
            at, more = _in_turn((at, rows[1]), [*inner, *allowed])
            used += more
        return at, used

    # -- who uses what, and since when nobody does -----------------------------------------------------------------

    def use(self, user: str, entries: Iterable[Entry]) -> None:
        """Note that a conversation uses these (nothing for one without a name)."""
        for entry in entries:
            if user and entry.live and user not in entry.users:
                entry.users.add(user)
                self.users.setdefault(user, set()).add(entry)

    def leave(self, user: str) -> list[Entry]:
        """The conversation is gone: remove what only it used, its bytes erased, and return it.

        What is pinned, or being written, keeps its bytes until it isn't any more.
        """
        gone = []
        for entry in list(self.users.get(user, ())):
            if entry.users == {user}:
                gone.append(entry)
                entry.secret = True
                self.remove(entry)
            else:
                entry.users.discard(user)
                self._part(user, entry)
        return gone

    def idle(self, seconds: float) -> list[Entry]:
        """What is unpinned and was last needed longer ago than that; it stays where it is."""
        self._order.settle()
        since = self._now() - seconds
        return [entry for entry in self._order if entry.used_at < since and not entry.pins]

    def victims(self, spared: Collection[Entry]) -> Iterator[Entry]:
        """Entries on disk that may be evicted, in order: neither pinned nor spared."""
        for entry in self:
            if entry.live and entry.extent is not None and not entry.pins and entry not in spared:
                yield entry

    def check(self) -> None:
        """Raise AssertionError at the first contradiction among the index's own maps."""
        found = self._places.check()
        for entry in found:
            assert entry.live, "index: an entry both removed and findable"
            assert (entry.payload is None) != (entry.extent is None), "index: bytes in two places or none"
        assert found == set(self._order), "index: the eviction order lists other entries than the maps"
        assert self.record_bytes == sum(entry.nbytes for entry in found), "index: record bytes don't add up"
        known = found | self.limbo
        assert all(entry.pins >= 0 for entry in known), "index: fewer than no pins"
        assert {entry for entry in known if entry.pins} <= self.pinned, "index: a pinned entry not listed"
        assert all(entry.pins > 0 for entry in self.pinned), "index: an unpinned entry listed as pinned"
        assert all(entry.pins and not entry.live for entry in self.limbo), "index: limbo holds a live or unpinned entry"
        assert all(self.users.values()), "index: a conversation that uses nothing"
        uses = {(user, entry) for user, entries in self.users.items() for entry in entries}
        assert uses == {(user, entry) for entry in found for user in entry.users}, "index: users don't add up"


def _in_turn(rows: tuple[int, int], known: Iterable[Entry | None]) -> tuple[int, list[Entry]]:
    """How far records hold rows [start, end), each going on where the one before it ends; and which do."""
    at, end = rows
    used: list[Entry] = []
    there = [entry for entry in known if entry is not None]
    while at < end:
        fitting = [entry for entry in there if entry.header.row_start <= at < entry.header.position]
        if not fitting:
            break
        used.append(max(fitting, key=lambda entry: entry.header.position))
        at = min(used[-1].header.position, end)
    return at, used
