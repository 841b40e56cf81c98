"""The sliding-window cache that keeps its rows in temporal order."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

SLACK = 128  # rows kept beyond the window: short rewinds stay in memory, and decode compacts once in 128 tokens


class WindowKVCache(RotatingKVCache):  # type: ignore[misc]
    """Takes the place of `RotatingKVCache(max_size=W, keep=0)`: same fields, same masks, same rows to attention.

    Stock attends in ring order once it has wrapped, so decode drifts from prefill in the last bits and a block can
    leave the ring before it is captured. Here rows [0, _idx) of the buffers are always the positions
    [offset - _idx, offset) in order, and each call hands attention exactly the rows that stock would: the newest
    min(offset, W - 1) + S of a call of S > 1, the newest min(offset + 1, W) of a call of 1.

    keys, values: [1, heads, capacity, width]; only the first `_idx` rows mean anything.
    """

    def __init__(self, max_size: int) -> None:
        super().__init__(max_size=max_size, keep=0)
        self.keys: Any  # mx.array [1, heads, capacity, width], None before the first update
        self.values: Any
        self.offset: int
        self._idx: int
        self._seen: tuple[mx.array, mx.array] | None = None

    @property
    def first_row(self) -> int:
        """The position that row 0 of the buffers holds."""
        return int(self.offset - self._idx)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append S rows ([1, heads, S, width] each) and return the rows that attention may see."""
        steps = keys.shape[2]
        visible = min(self.offset, self.max_size - 1) + steps
        if self.keys is not None and self._idx + steps <= self.keys.shape[2]:
            self.keys[..., self._idx : self._idx + steps, :] = keys
            self.values[..., self._idx : self._idx + steps, :] = values
            self._idx += steps
        else:
            self._grow(keys, values)
        self.offset += steps
        return self.keys_and_values(visible)

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        # The slack goes along, so that the cuts just before this call stay within reach of a rewind in memory.
        kept = min(self._idx, self.max_size + SLACK)
        room = SLACK if keys.shape[2] == 1 else 0
        self.keys = _append(self.keys, self._idx, kept, keys, room)
        self.values = _append(self.values, self._idx, kept, values, room)
        self._idx = kept + keys.shape[2]

    def keys_and_values(self, visible: int | None = None) -> tuple[mx.array, mx.array]:
        """The rows of the last update; layers that share this cache read them after their owner has advanced."""
        if visible is not None:
            first = self._idx - visible
            self._seen = (self.keys[..., first : self._idx, :], self.values[..., first : self._idx, :])
        assert self._seen is not None, "read before the first update"
        return self._seen

    def drop_view(self) -> None:
        """Once a call's graph is built: a view held over the next call would make its row write copy the buffer."""
        self._seen = None

    def compact(self) -> None:
        """After a call's blocks are captured: keep the newest W + SLACK rows, with room for a block of decode."""
        kept = self.max_size + SLACK
        if self.keys is not None and self._idx > kept + SLACK:
            self.keys = _append(self.keys, self._idx, kept, None, SLACK)
            self.values = _append(self.values, self._idx, kept, None, SLACK)
            self._idx = kept

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        """Stock's masks; for one token only where the model's window is narrower than the cache's."""
        if N > 1:
            return super().make_mask(N, window_size=window_size, return_array=return_array)
        rows = min(self.offset + 1, self.max_size)
        if window_size is None or window_size >= rows:
            return None
        return mx.arange(rows) >= rows - window_size

    def is_trimmable(self) -> bool:
        """Whether any rewind can work; `cache.live` checks how far."""
        return True

    def trim(self, n: int) -> int:
        """Forget the newest n rows (n <= rows held); the caller has checked that the window before them is held."""
        n = min(self._idx, n)
        self.offset -= n
        self._idx -= n
        self._seen = None
        return n


class VisionWindowKVCache(WindowKVCache):
    """The same for mlx-vlm's models: layers that share a cache read its `state` where mlx-lm's call a method."""

    @property
    def state(self) -> tuple[mx.array, mx.array]:
        """The rows of the last update."""
        return self.keys_and_values()


def _append(held: mx.array | None, end: int, kept: int, new: mx.array | None, room: int) -> mx.array:
    """A fresh buffer of the newest `kept` of held[:end], then `new`, then `room` empty rows."""
    parts = [] if held is None or kept == 0 else [held[..., end - kept : end, :]]
    if new is not None:
        parts.append(new)
    if room:
        shape = (*parts[0].shape[:2], room, parts[0].shape[3])
        parts.append(mx.zeros(shape, parts[0].dtype))
    return mx.concatenate(parts, axis=2)


def use_window_caches(caches: list[Any]) -> list[Any]:
    """Put a WindowKVCache in the place of every RotatingKVCache with keep = 0 (none of them may hold rows yet)."""
    return [_window_cache(cache) for cache in caches]


def _window_cache(cache: Any) -> Any:
    kind = type(cache).__name__
    if kind == "RotatingKVCache" and cache.keep == 0:
        of_vision = type(cache).__module__.startswith("mlx_vlm.")
        return VisionWindowKVCache(cache.max_size) if of_vision else WindowKVCache(cache.max_size)
    if kind == "CacheList":
        cache.caches = type(cache.caches)(_window_cache(part) for part in cache.caches)
    return cache


__all__ = ["SLACK", "VisionWindowKVCache", "WindowKVCache", "use_window_caches"]
