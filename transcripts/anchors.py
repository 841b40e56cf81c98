"""Where a recurrent layer could be put back to: the exact positions whose state a run holds or writes."""

from __future__ import annotations

from collections.abc import Iterable

from ..cache.keys import BLOCK, Chain, Ids, Place
from ..engine.cuts import PREFILL_STEP


class Anchors:
    """Positions of all sequences fed so far, found again by the ids that lead to them."""

    def __init__(self) -> None:
        self._tails: dict[bytes, set[bytes]] = {}

    def add(self, ids: Ids, marks: Iterable[int]) -> None:
        """Remember a fed sequence: its marks, the steps of prefill, and its end."""
        keys = _keys(ids)
        for position in {*marks, *range(PREFILL_STEP, len(ids), PREFILL_STEP), len(ids)}:
            if 0 < position <= len(ids):
                place = Place.at(keys, ids, position)
                self._tails.setdefault(place.parent, set()).add(place.ids)

    def best(self, ids: Ids, limit: int) -> int:
        """The largest remembered position <= `limit` that `ids` leads to; 0 if there is none."""
        keys = _keys(ids)
        for edge in range(max(limit - 1, 0) // BLOCK, -1, -1):
            found = self._tails.get(keys[edge], ())
            start = edge * BLOCK
            block = ids[start : start + BLOCK].astype("<i4", copy=False).tobytes()
            fits = [len(tail) // 4 for tail in found if block.startswith(tail)]
            within = [start + length for length in fits if start + length <= limit]
            if within:
                return max(within)
        return 0


def _keys(ids: Ids) -> list[bytes]:
    chain = Chain(b"")
    chain.append(ids)
    return chain.keys
