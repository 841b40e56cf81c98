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
from mlx_lm.models.cache import KVCache

from .layers import flatten
from .window import WindowKVCache

Ranges = Sequence[tuple[int, int]]


class PictureKVCache(KVCache):  # type: ignore[misc]
    """KVCache whose mask shows `pictures`, the ranges of positions that the next call feeds whole."""

    pictures: Ranges = ()

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Any:  # noqa: N803
        """Stock's mask, or bool [N, offset + N] with the pictures' squares open."""
        if not self.pictures:
            return super().make_mask(N, return_array=return_array, window_size=window_size)
        mask = super().make_mask(N, return_array=True, window_size=window_size)
        return _open(mask, self.pictures, self.offset, 0)


class PictureWindowKVCache(WindowKVCache):
    """WindowKVCache whose mask shows `pictures`."""

    pictures: Ranges = ()

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        """The window's mask, with the pictures' squares open: inside a picture the window doesn't count."""
        if not self.pictures:
            return super().make_mask(N, window_size=window_size, return_array=return_array)
        mask = super().make_mask(N, window_size=window_size, return_array=True)
        return _open(mask, self.pictures, self.offset, self.offset + N - mask.shape[-1])


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
    if kind == "WindowKVCache":
        return PictureWindowKVCache(cache.max_size)
    return cache


@contextmanager
def mask_pictures(caches: list[Any], pictures: Ranges) -> Iterator[None]:
    """For one call: its pictures, as ranges of positions that it feeds whole."""
    leaves = [leaf for leaf in flatten(caches) if isinstance(leaf, PictureKVCache | PictureWindowKVCache)]
    for leaf in leaves:
        leaf.pictures = pictures
    try:
        yield
    finally:
        for leaf in leaves:
            leaf.pictures = ()
