"""Finding stored places by the elements that lead to them, compared by value, never by hash alone."""

from __future__ import annotations

from dataclasses import dataclass

from .index import Entry, Index
from .keys import Ids, Place
from .trie import common_prefix


@dataclass(frozen=True)
class Match:
    """A stored place whose first `equal` elements (at least 1) are the ones asked for; it has `length` of them.

    `groups` is what is stored there, by group of layers, when it was looked up.
    """

    place: Place
    equal: int
    length: int
    groups: dict[str, Entry]

    @property
    def is_whole(self) -> bool:
        """Whether all of the place's elements are the ones asked for."""
        return self.equal == self.length


def matches_below(index: Index, parent: bytes, ids: Ids) -> list[Match]:
    """Every stored place below an edge that shares at least its first element with `ids`."""
    found = []
    wanted = ids.astype("<i4", copy=False).tobytes()
    for child, groups in index.children(parent).items():
        place = Place(parent, child)
        equal = place.length if wanted.startswith(child) else common_prefix(place.elements, ids)
        if equal:
            found.append(Match(place, equal, place.length, dict(groups)))
    return found


def match_exactly(index: Index, parent: bytes, ids: Ids) -> Match | None:
    """The stored place of exactly these 1 to 256 elements, without a search."""
    place = Place(parent, ids.astype("<i4", copy=False).tobytes())
    groups = dict(index.groups(place))
    return Match(place, place.length, place.length, groups) if groups else None
