"""Masks of pictures that are seen whole: the same wherever the call begins, in windows and out of them."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache
from mlxchat.cache.picture_mask import PictureKVCache, PictureWindowKVCache, mask_pictures, use_picture_masks
from mlxchat.cache.row_readers import row_reader
from mlxchat.cache.window import WindowKVCache

pytestmark = pytest.mark.exact
LENGTH, WINDOW = 40, 12
PICTURES = [(9, 15), (20, 30)]


def _wanted(window: int | None) -> np.ndarray:
    """Who sees whom among LENGTH positions."""
    row, column = np.indices((LENGTH, LENGTH))
    seen = row >= column
    if window is not None:
        seen &= row < column + window
    for start, end in PICTURES:
        seen[start:end, start:end] = True
    return seen


def _fill(cache: KVCache | WindowKVCache, count: int) -> None:
    cache.update_and_fetch(mx.zeros((1, 1, count, 2)), mx.zeros((1, 1, count, 2)))


@pytest.mark.parametrize("start", [0, 4, 9, 16, 20, 31])
@pytest.mark.parametrize("window", [None, WINDOW])
def test_the_mask_of_any_call_is_a_part_of_the_whole(start: int, window: int | None) -> None:
    cache = PictureKVCache() if window is None else PictureWindowKVCache(window)
    if start:
        _fill(cache, start)
    met = [(low, high) for low, high in PICTURES if high > start]
    with mask_pictures([cache], met):
        mask = cache.make_mask(LENGTH - start, window_size=window)
    wanted = _wanted(window)[start:]
    if met:
        assert np.array_equal(np.array(mask), wanted[:, LENGTH - mask.shape[-1] :])
        assert not wanted[:, : LENGTH - mask.shape[-1]].any()  # what the window has dropped, nobody sees
    assert cache.pictures == ()


def test_a_call_without_pictures_has_the_stock_mask() -> None:
    for ours, stock in ((PictureKVCache(), KVCache()), (PictureWindowKVCache(4), WindowKVCache(4))):
        for count in (1, 7):
            more = {"return_array": False, "window_size": None}
            assert _same(ours.make_mask(count, **more), stock.make_mask(count, **more))


def _same(one: object, other: object) -> bool:
    if isinstance(one, mx.array):
        return bool(mx.array_equal(one, other))
    return one == other


def test_the_classes_are_restored_like_the_ones_they_stand_for() -> None:
    stock = [KVCache(), WindowKVCache(8)]
    for ours, theirs in zip(use_picture_masks(stock), stock, strict=True):
        assert row_reader(ours) == row_reader(theirs)
