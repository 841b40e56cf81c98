"""How each cache class of mlx-lm and mlx-vlm is read row by row and set again.

The libraries' own `state` and `meta_state` changed between versions, so this module sets the fields themselves.
Classes are matched by name: mlx-lm and mlx-vlm have copies of each other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx


class UnsupportedCache(Exception):
    """A cache class that this module can't restore; the message is its name."""


class RowReader(Protocol):
    """One cache leaf whose state is rows, one per position. Tensors are [1, heads, capacity, width]."""

    @property
    def window(self) -> int | None:
        """The most rows that attention sees; None for all."""
        ...

    def tensors(self, cache: Any) -> list[mx.array]:
        """The row buffers, evaluated or lazy; empty before the first call."""
        ...

    def first_row(self, cache: Any) -> int:
        """The position held by row 0 of the buffers."""
        ...

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """Make the buffers this leaf's own: their first `rows` rows are the positions before `position`."""
        ...

    def trim(self, cache: Any, count: int) -> int:
        """Forget the newest `count` rows; how many were forgotten."""
        ...


@dataclass(frozen=True)
class GlobalRows:
    """KVCache: every row since position 0."""

    window: int | None = None

    def tensors(self, cache: Any) -> list[mx.array]:
        """keys, values."""
        return [] if cache.keys is None else [cache.keys, cache.values]

    def first_row(self, cache: Any) -> int:
        """Always 0."""
        return 0

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """rows == position."""
        cache.keys, cache.values = tensors
        cache.offset = position

    def trim(self, cache: Any, count: int) -> int:
        """The class's own: it lowers the offset."""
        return int(cache.trim(count))


@dataclass(frozen=True)
class ConcatenatedRows(GlobalRows):
    """ConcatenateKVCache: its buffer has no spare rows and is what attention sees, whatever the offset says."""

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """A buffer of the exact size."""
        cache.keys, cache.values = (tensor[..., :rows, :] for tensor in tensors)
        cache.offset = position

    def trim(self, cache: Any, count: int) -> int:
        """Cut the buffer: the class's own trim leaves the rows in it."""
        kept = cache.offset - count
        self.install(cache, [cache.keys, cache.values], kept, kept)
        return count


@dataclass(frozen=True)
class QuantizedRows(GlobalRows):
    """QuantizedKVCache: packed values, scales and biases of keys, then of values. Quantized from its first token on."""

    def tensors(self, cache: Any) -> list[mx.array]:
        """Three of the keys, three of the values."""
        return [] if cache.keys is None else [*cache.keys, *cache.values]

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """rows == position; group_size and bits are the fresh cache's own."""
        cache.keys, cache.values = list(tensors[:3]), list(tensors[3:])
        cache.offset = position


@dataclass(frozen=True)
class ChunkedRows(GlobalRows):
    """ChunkedKVCache (llama4): rows since `start_position`, which the model moves up before each call.

    Before its next call the model keeps `chunk_size` rows, so those are what a restore needs.
    """

    def first_row(self, cache: Any) -> int:
        """start_position."""
        return int(cache.start_position)

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """Set the stock field names."""
        cache.keys, cache.values = tensors
        cache.offset, cache.start_position = position, position - rows


@dataclass(frozen=True)
class WindowRows:
    """WindowKVCache: the newest rows, in temporal order."""

    window: int | None

    def tensors(self, cache: Any) -> list[mx.array]:
        """keys, values."""
        return [] if cache.keys is None else [cache.keys, cache.values]

    def first_row(self, cache: Any) -> int:
        """offset - _idx."""
        return int(cache.first_row)

    def install(self, cache: Any, tensors: list[mx.array], position: int, rows: int) -> None:
        """Set the stock field names."""
        cache.keys, cache.values = tensors
        cache.offset, cache._idx, cache._seen = position, rows, None

    def trim(self, cache: Any, count: int) -> int:
        """The class's own."""
        return int(cache.trim(count))


def row_reader(leaf: Any) -> tuple[str, RowReader]:
    """The group's name and the reader of a leaf that holds rows. Raises UnsupportedCache with the class's name."""
    kind = type(leaf).__name__
    if kind in ("KVCache", "PictureKVCache"):
        return "global", GlobalRows()
    if kind == "ConcatenateKVCache":
        return "global", ConcatenatedRows()
    if kind in ("QuantizedKVCache", "PictureQuantizedKVCache"):
        return f"global:q{leaf.bits}g{leaf.group_size}", QuantizedRows()
    if kind == "ChunkedKVCache":
        return f"chunked:{leaf.chunk_size}", ChunkedRows(leaf.chunk_size)
    if kind in ("WindowKVCache", "VisionWindowKVCache", "PictureWindowKVCache"):
        return f"local:{leaf.max_size}", WindowRows(leaf.max_size)
    raise UnsupportedCache(kind)
