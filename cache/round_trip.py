"""A round trip on fresh caches before the first request: does this version of the library still keep KV as we think?

The fields that `row_readers` reads and sets are not promised by anyone. Whether they mean what they meant is seen by
doing once what every restore does: feed, copy the rows out, install them in a second cache, and go on with both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from .keys import BLOCK
from .layers import DTYPE_NAMES, Layout, RowGroup, empty_rows, flatten, row_bytes
from .row_readers import RowReader

_WIDTH = 4  # of a row, unless quantized, where it is one group
_FED = BLOCK + 5  # rows before the restore, besides a whole window
_NEXT = (3, 1, 2)  # rows of the calls after it


class ChangedLibrary(Exception):
    """A cache class that no longer does what it did; the message is its name."""


def check_round_trip(make_caches: Callable[[], list[Any]]) -> None:
    """Restore one cache of each kind of the model. Raises ChangedLibrary with a class's name. Takes milliseconds."""
    written, restored = flatten(make_caches()), flatten(make_caches())
    layout = Layout.of(written)
    for group in layout.rows:
        for index, reader in {reader: (index, reader) for index, reader in group.leaves}.values():
            _named(written[index], partial(_rows, written[index], restored[index], reader, group))
    if layout.states is not None:
        for index in layout.states.leaves:
            _named(written[index], partial(_states, written[index], restored[index]))


def _named(leaf: Any, trip: Callable[[], bool]) -> None:
    try:
        same = trip()
    except Exception as error:  # a field that is gone, a method that takes other arguments
        raise ChangedLibrary(type(leaf).__name__) from error
    if not same:
        raise ChangedLibrary(type(leaf).__name__)


def _rows(written: Any, restored: Any, reader: RowReader, group: RowGroup) -> bool:
    """Whether a cache that was restored goes on as the one that wrote, and as it did after a trim."""
    width = getattr(written, "group_size", _WIDTH)
    position = (group.window or 0) + _FED
    _feed(written, 0, position, width)
    first = group.first_needed(position)
    held = reader.first_row(written)
    copies = []
    for tensor in reader.tensors(written):
        _, heads, _, columns = tensor.shape
        copies.append(empty_rows(DTYPE_NAMES[tensor.dtype], heads, position - first + BLOCK, columns))
        row_bytes(copies[-1])[:, : position - first] = row_bytes(tensor)[:, first - held : position - held]
    reader.install(restored, copies, position, position - first)
    for count in _NEXT:
        wanted = _feed(written, position, count, width)
        if not _same(_feed(restored, position, count, width), wanted):
            return False
        position += count
        if not int(written.offset) == int(restored.offset) == position:
            return False
    # Taken back and fed again, the last call gives what it gave.
    return reader.trim(restored, count) == count and _same(_feed(restored, position - count, count, width), wanted)


def _feed(cache: Any, start: int, count: int, width: int) -> list[mx.array]:
    """What attention gets from a call of `count` rows."""
    if hasattr(cache, "maybe_trim_front"):
        cache.maybe_trim_front()
    at = mx.arange(start * width, (start + count) * width, dtype=mx.float32).reshape(1, 1, count, width)
    got = [array for _, array in tree_flatten(cache.update_and_fetch(mx.sin(at), mx.cos(at)))]
    mx.eval(got)
    return got


def _same(one: list[mx.array], other: list[mx.array]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(np.array(a), np.array(b)) for a, b in zip(one, other, strict=True)
    )


def _states(written: Any, restored: Any) -> bool:
    """Whether the arrays of a state lie in `cache`, one list entry each, and can be set there."""
    values = [mx.arange(number + 1) for number in range(len(written.cache))]
    for number, value in enumerate(values):
        written[number] = value
    restored.cache = list(written.cache)
    return len(values) > 0 and all(restored[number] is value for number, value in enumerate(values))
