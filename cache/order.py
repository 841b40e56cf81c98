"""In which order records are evicted: the least recently needed first, of one chain the suffix before the prefix.

What a position needs decides what a touch of it reaches: global layers every block before it, local layers those
under their window, a recurrent state nothing before itself. So old blocks of local layers age while their conversation
goes on.
The caller holds the store's lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from .keys import Place
from .places import Places

if TYPE_CHECKING:
    from .index import Entry

_MOST_TOUCHES: Final = 4096


class Order:
    """All findable entries. `reaches` has, for each group that doesn't need all before it, how many positions it does.

    `now` is the time that `used_at` of the entries is counted in, in seconds.
    """

    def __init__(self, places: Places, reaches: Mapping[str, int], now: Callable[[], float]) -> None:
        self._places = places
        self._reaches = dict(reaches)
        self._longest = max(self._reaches.values(), default=0)
        self._now = now
        self._entries: OrderedDict[Entry, None] = OrderedDict()
        self._touched: list[tuple[float, list[Place], list[Entry]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """The next to be evicted first."""
        self.settle()
        return iter(list(self._entries))

    def add(self, entry: Entry) -> None:
        """List an entry, as the last to be evicted until others are touched."""
        self._entries[entry] = None

    def drop(self, entry: Entry) -> None:
        """List it no more. Must hold: it is listed."""
        del self._entries[entry]

    def needed(self, place: Place) -> Iterator[Entry]:
        """What a restore to `place`, or a record that stands there, needs; what else stands there, too."""
        for distance, above in self._places.above(place):
            for group, entry in self._places.groups(above).items():
                if self._is_needed(group, distance):
                    yield entry

    def _is_needed(self, group: str, distance: int) -> bool:
        reach = self._reaches.get(group)
        return distance == 0 or reach is None or distance < reach

    def touch(self, places: Iterable[Place], entries: Iterable[Entry] = ()) -> None:
        """Evict what these places need, and these entries, last; of one chain, the suffix before the prefix.

        Only noted here: a chain is as long as its prompt, and most are touched again before anything is evicted.
        """
        self._touched.append((self._now(), list(places), list(entries)))
        if len(self._touched) > _MOST_TOUCHES:
            self.settle()

    def settle(self) -> None:
        """Bring the order up to date. The newest touch first, so that what is touched often is moved once."""
        walked: set[Place] = set()
        starts: set[Place] = set()
        met: set[Entry] = set()
        batches: list[list[Entry]] = []
        while self._touched:
            when, places, entries = self._touched.pop()
            found = dict.fromkeys(entries)
            for place in places:
                if place not in starts:
                    found.update(dict.fromkeys(self._reached(place, walked)))
                    starts.add(place)
            fresh = [entry for entry in found if entry not in met and entry in self._entries]
            met.update(fresh)
            for entry in fresh:
                entry.used_at = max(entry.used_at, when)
            batches.append(sorted(fresh, key=_position, reverse=True))
        for entry in (entry for batch in reversed(batches) for entry in batch):
            self._entries.move_to_end(entry)

    def _reached(self, place: Place, walked: set[Place]) -> Iterator[Entry]:
        """What `place` needs, but for what lies past the reach of local layers on a chain that was walked already."""
        for distance, above in self._places.above(place):
            if above in walked and distance >= self._longest and distance:
                return
            walked.add(above)
            for group, entry in self._places.groups(above).items():
                if self._is_needed(group, distance):
                    yield entry

    def demote(self, places: Iterable[Place]) -> None:
        """Evict these and what is stored after them, up to a hole, first; the suffix before the prefix."""
        self.settle()
        met = dict.fromkeys(after for place in places for after in self._places.following(place))
        entries = [entry for place in met for entry in self._places.groups(place).values()]
        for entry in sorted(entries, key=_position):
            self._entries.move_to_end(entry, last=False)


def _position(entry: Entry) -> int:
    return entry.header.position
