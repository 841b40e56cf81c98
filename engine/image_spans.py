"""Where a prompt's pictures stand: their spans, what stands in them, and which of them a stretch of it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PreparedImage:
    """One picture as a model's processor lays it out in a prompt.

    digest       sha256 of the pixels, 32 bytes
    lead, tail   ordinary text that the processor puts before and behind the picture's own ids
    ids          the ids of its span: placeholders, and control tokens around and between them
    first, last  the texts of the first and last id, beside which neighbouring text is tokenized
    placeholder  the id that stands for one row of the picture's features
    grid         (time, height, width) in placeholders, for models with positions in several dimensions; else None
    """

    digest: bytes
    lead: str
    ids: tuple[int, ...]
    tail: str
    first: str
    last: str
    placeholder: int
    grid: tuple[int, int, int] | None

    @property
    def tokens(self) -> int:
        """How many placeholders it has."""
        return self.ids.count(self.placeholder)


@dataclass(frozen=True)
class ImageSpan:
    """A picture at the positions [start, end) of a prompt. `source` is where its pixels can be read again."""

    start: int
    end: int
    image: PreparedImage
    source: str

    @property
    def digest(self) -> bytes:
        """What tells the picture from others."""
        return self.image.digest

    def inside(self, position: int) -> bool:
        """Whether a call that ended at `position` would have cut the picture."""
        return self.start < position < self.end


def overlapping(spans: Sequence[ImageSpan], start: int, end: int) -> list[ImageSpan]:
    """The spans that touch positions [start, end), in order."""
    return [span for span in spans if span.start < end and start < span.end]


def rope_positions(spans: Sequence[ImageSpan], start: int, end: int) -> NDArray[np.int32]:
    """Positions of [start, end) in three dimensions (time, height, width), int32 [3, end - start].

    Text counts up in all three; a picture counts up in each by its grid, and text goes on behind the largest.
    """
    out = np.tile(np.arange(start, end, dtype=np.int32), (3, 1))
    shift = 0
    for span in spans:
        if span.start >= end or span.image.grid is None:
            break
        length, size = span.end - span.start, max(span.image.grid)
        if start < span.end:
            low, high = max(start, span.start), min(end, span.end)
            grid = np.indices(span.image.grid, dtype=np.int32).reshape(3, length)
            out[:, low - start : high - start] = grid[:, low - span.start : high - span.start] + span.start + shift
        shift += size - length
        if span.end < end:
            low = max(start, span.end)
            out[:, low - start :] = np.arange(low, end, dtype=np.int32) + shift
    return out
