"""Masks for models whose pictures are seen whole: each of a picture's positions attends to all of them.

The libraries ask a cache for its mask, so this is where the pictures of the call that is under way are known. The
mask is right wherever the call begins, which the libraries' own is for a call at position 0 only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from .layers import flatten
from .window import VisionWindowKVCache, WindowKVCache

Ranges = Sequence[tuple[int, int]]


class _SeesPictures:
    """A cache whose mask shows `pictures`, the ranges of positions that the next call feeds whole."""

    pictures: Ranges = ()
    offset: int

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Any:  # noqa: N803
        """The cache's own mask; or bool [N, rows seen] with the pictures' squares open, inside a window too."""
        make: Any = super().make_mask  # type: ignore[misc]
        if not self.pictures:
            return make(N, return_array=return_array, window_size=window_size)
        mask = make(N, return_array=True, window_size=window_size)
        return _open(mask, self.pictures, self.offset, self.offset + N - mask.shape[-1])


class PictureKVCache(_SeesPictures, KVCache):  # type: ignore[misc]
    """KVCache."""


class PictureQuantizedKVCache(_SeesPictures, QuantizedKVCache):  # type: ignore[misc]
    """QuantizedKVCache."""


class PictureWindowKVCache(_SeesPictures, VisionWindowKVCache):  # type: ignore[misc]
    """The window cache of mlx-vlm's models."""


def _open(mask: mx.array, pictures: Ranges, row: int, column: int) -> mx.array:
    """`mask` (bool [rows, columns]; its corner is at positions `row`, `column`) with each picture's square True."""
    rows, columns = mask.shape[-2:]
    squares = np.zeros((rows, columns), np.bool_)
    for start, end in pictures:
        squares[max(0, start - row) : max(0, end - row), max(0, start - column) : max(0, end - column)] = True
    return mask | mx.array(squares)


def use_picture_masks(caches: list[Any]) -> list[Any]:
    """Put caches that know pictures in the place of global and window caches (none of them may hold rows yet)."""
    return [_picture_cache(cache) for cache in caches]


def _picture_cache(cache: Any) -> Any:
    kind = type(cache).__name__
    if kind == "KVCache":
        return PictureKVCache()
    if kind == "QuantizedKVCache":
        return PictureQuantizedKVCache(group_size=cache.group_size, bits=cache.bits)
    if isinstance(cache, WindowKVCache):
        return PictureWindowKVCache(cache.max_size)
    return cache


@contextmanager
def mask_pictures(caches: list[Any], pictures: Ranges) -> Iterator[None]:
    """For one call: its pictures, as ranges of positions that it feeds whole."""
    leaves = [leaf for leaf in flatten(caches) if isinstance(leaf, _SeesPictures)]
    for leaf in leaves:
        leaf.pictures = pictures
    try:
        yield
    finally:
        for leaf in leaves:
            leaf.pictures = ()
