"""How each cache class of mlx-lm and mlx-vlm is read row by row and set again.

The libraries' own `state` and `meta_state` changed between versions, so this module sets the fields themselves.
Classes are matched by name: mlx-lm and mlx-vlm have copies of each other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from .keys import BLOCK

DTYPE_NAMES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.int32: "I32",
    mx.uint8: "U8",
}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
Bytes = npt.NDArray[np.uint8]


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


@dataclass(frozen=True)
class RowGroup:
    """Leaves whose rows live and die together, so one record holds a block of all of them."""

    name: str
    window: int | None
    leaves: tuple[tuple[int, RowReader], ...]

    def first_needed(self, position: int) -> int:
        """The first row that a restore to `position` needs: the window, and all of the block that is being filled.

        The latter matters for windows under 256: a block captured after the restore must be whole.
        """
        if self.window is None:
            return 0
        return max(0, min(position - self.window, position // BLOCK * BLOCK))


@dataclass(frozen=True)
class StateGroup:
    """Leaves (ArraysCache) whose whole state belongs to one exact position."""

    name: str
    leaves: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The groups of one model's cache list, and its size."""

    rows: tuple[RowGroup, ...]
    states: StateGroup | None
    leaf_count: int

    @classmethod
    def of(cls, caches: list[Any]) -> Layout:
        """Sort fresh caches into groups. Raises UnsupportedCache with the class's name."""
        leaves = flatten(caches)
        by_name: dict[str, list[tuple[int, RowReader]]] = {}
        states: list[int] = []
        for index, leaf in enumerate(leaves):
            if type(leaf).__name__ == "ArraysCache":
                states.append(index)
            else:
                name, reader = row_reader(leaf)
                by_name.setdefault(name, []).append((index, reader))
        rows = tuple(RowGroup(name, members[0][1].window, tuple(members)) for name, members in sorted(by_name.items()))
        return cls(rows, StateGroup("state", tuple(states)) if states else None, len(leaves))

    def describe(self) -> str:
        """One line that names the layout; part of the namespace."""
        parts = [f"{group.name}={','.join(str(i) for i, _ in group.leaves)}" for group in self.rows]
        if self.states:
            parts.append(f"state={','.join(map(str, self.states.leaves))}")
        return ";".join(parts)


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


def flatten(caches: list[Any]) -> list[Any]:
    """The leaves of a cache list, CacheList opened up, in order."""
    out: list[Any] = []
    for cache in caches:
        if type(cache).__name__ == "CacheList":
            out.extend(flatten(list(cache.caches)))
        else:
            out.append(cache)
    return out


def host_view(array: mx.array) -> memoryview:
    """The bytes of an evaluated array, contiguous; of a copy if the array isn't."""
    view = memoryview(cast(Any, array))
    if not view.contiguous:
        array = mx.contiguous(array)
        mx.eval(array)
        view = memoryview(cast(Any, array))
    return view


def row_bytes(tensor: mx.array) -> Bytes:
    """A writable host view [heads, capacity, bytes per row] of an evaluated row buffer. Drop it before the next call.

    A buffer that isn't contiguous is copied first, so write only into buffers made by `empty_rows`.
    """
    view = host_view(tensor)
    _, heads, capacity, width = tensor.shape
    if width == 0:
        return np.empty((heads, capacity, 0), np.uint8)
    return np.frombuffer(view, np.uint8).reshape(heads, capacity, width * tensor.itemsize)


def empty_rows(dtype: str, heads: int, capacity: int, width: int) -> mx.array:
    """A zeroed row buffer [1, heads, capacity, width], lazy: evaluate many at once."""
    return mx.zeros((1, heads, capacity, width), DTYPES[dtype])


def pending_arrays(caches: list[Any]) -> list[mx.array]:
    """Every array that a call may have left lazy, for one mx.eval."""
    arrays: list[mx.array] = []
    for leaf in flatten(caches):
        if hasattr(leaf, "keys"):
            keys, values = leaf.keys, leaf.values
            for item in (keys, values):
                if isinstance(item, mx.array):
                    arrays.append(item)
                elif item is not None:
                    arrays.extend(item)
        elif hasattr(leaf, "cache"):
            arrays.extend(a for a in leaf.cache if a is not None)
    return arrays
