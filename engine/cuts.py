"""Where prefill calls end. A function of the prompt alone, the same with the cache on or off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .image_spans import ImageSpan

PREFILL_STEP = 2048  # tokens; a multiple of the block


def cuts(length: int, marks: Iterable[int], step: int = PREFILL_STEP, whole: Sequence[ImageSpan] = ()) -> list[int]:
    """Ascending ends of the calls that prefill `length` ids: steps, marks, length - 1, and length itself.

    Kernels are not row-invariant, so equal bits need equal calls: nothing but the prompt may move a cut.
    whole    pictures that one call must feed: a cut inside one moves to its start
    """
    found = {*range(step, length, step), *(mark for mark in marks if 0 < mark < length), length}
    if length > 1:
        found.add(length - 1)
    return kept_whole(found, whole)


def kept_whole(ends: Iterable[int], whole: Sequence[ImageSpan]) -> list[int]:
    """Ascending ends of calls, those inside a picture moved to its start."""
    found = set(ends)
    for span in whole:
        found = {span.start if span.inside(end) else end for end in found}
    return sorted(found - {0})


def calls(start: int, ends: list[int]) -> list[tuple[int, int]]:
    """The calls left from `start` on, as (start, end); a start inside a call takes the rest of that call."""
    out = []
    for end in ends:
        if end > start:
            out.append((start, end))
            start = end
    return out
