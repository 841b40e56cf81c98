"""Where prefill calls end. A function of the prompt alone, the same with the cache on or off."""

from __future__ import annotations

from collections.abc import Iterable

PREFILL_STEP = 2048  # tokens; a multiple of the block


def cuts(length: int, marks: Iterable[int], step: int = PREFILL_STEP) -> list[int]:
    """Ascending ends of the calls that prefill `length` ids: steps, marks, length - 1, and length itself.

    Kernels are not row-invariant, so equal bits need equal calls: nothing but the prompt may move a cut.
    """
    found = {*range(step, length, step), *(mark for mark in marks if 0 < mark < length), length}
    if length > 1:
        found.add(length - 1)
    return sorted(found)


def calls(start: int, ends: list[int]) -> list[tuple[int, int]]:
    """The calls left from `start` on, as (start, end); a start inside a call takes the rest of that call."""
    out = []
    for end in ends:
        if end > start:
            out.append((start, end))
            start = end
    return out
