"""The groups that one model's caches fall into, and their arrays as bytes of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from .keys import BLOCK
from .row_readers import RowReader, row_reader

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


@dataclass(frozen=True)
class RowGroup:
    """Leaves whose rows live and die together, so one record holds some rows of all of them."""

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
