"""The caches of several sequences as the one cache list that a model is given when all of them decode one id.

Nothing is merged. Each sequence keeps its own buffers, and what a layer gets back for its keys is one array for each
sequence (`PerSequence`), not one array with padding. So no row is copied when a sequence joins or leaves, none is held
twice, no padding can be attended, and attention sees for each sequence the very arrays that it sees when that sequence
runs alone. What a model may gain from running together is in its weights, and those still meet all sequences at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from .live import LiveCache


class PerSequence(tuple[Any, ...]):
    """One value for each sequence, where a model expects a single array: keys, values, or a mask."""


class RowsTogether:
    """One layer's row caches, one for each sequence, by the names that models use.

    offset    int32 [sequences]: positions differ from sequence to sequence, and so do their rotations
    """

    def __init__(self, leaves: Sequence[Any], offset: mx.array) -> None:
        self.leaves = leaves
        self.offset = offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[PerSequence, PerSequence]:
        """Append to each sequence its row of [sequences, heads, S, width]; what attention may see of each."""
        self.offset = self.offset + keys.shape[2]
        return _parted(
            leaf.update_and_fetch(keys[number : number + 1], values[number : number + 1])
            for number, leaf in enumerate(self.leaves)
        )

    def keys_and_values(self) -> tuple[PerSequence, PerSequence]:
        """What the last update returned, for layers that share this cache (mlx-lm's models)."""
        return _parted(leaf.keys_and_values() for leaf in self.leaves)

    @property
    def state(self) -> tuple[PerSequence, PerSequence]:
        """The same for mlx-vlm's models."""
        return _parted(leaf.state[:2] for leaf in self.leaves)

    def make_mask(self, N: int, **asked: Any) -> PerSequence | None:  # noqa: N803
        """Each sequence's own mask; None if none of them needs one."""
        masks = PerSequence(leaf.make_mask(N, **asked) for leaf in self.leaves)
        return None if all(mask is None for mask in masks) else masks


class StatesTogether:
    """One layer's recurrent states. `whole` is the library's own cache with one row for each sequence.

    The rows are views of the joint arrays, so going on with the same sequences costs no copy.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.whole = type(leaves[0])(len(leaves[0].cache))
        self._parts: list[list[mx.array | None]] = [[] for _ in leaves]

    def gather(self) -> None:
        """Before a call. The arrays of the last one still hold, unless a sequence was set elsewhere since."""
        if all(_same(leaf.cache, part) for leaf, part in zip(self.leaves, self._parts, strict=True)):
            return
        columns = zip(*(leaf.cache for leaf in self.leaves), strict=True)
        self.whole.cache = [None if column[0] is None else mx.concatenate(list(column)) for column in columns]

    def scatter(self) -> None:
        """After a call: each sequence gets its row."""
        for number, leaf in enumerate(self.leaves):
            rows = [None if array is None else array[number : number + 1] for array in self.whole.cache]
            self._parts[number], leaf.cache = rows, list(rows)


class Together:
    """The cache list of `lives` for calls that feed each of them one id. Valid as long as they are the ones that do."""

    def __init__(self, lives: Sequence[LiveCache]) -> None:
        self.lives = tuple(lives)
        self._states: list[StatesTogether] = []

    def serves(self, lives: Sequence[LiveCache]) -> bool:
        """Whether these are its sequences, in its order."""
        return len(lives) == len(self.lives) and all(a is b for a, b in zip(lives, self.lives, strict=True))

    def caches(self) -> list[Any]:
        """For one call, at the sequences' present ends."""
        offset = mx.array([live.length for live in self.lives], mx.int32)
        if not self._states:
            self._states = [StatesTogether(leaves) for leaves in self._leaves() if _holds_states(leaves[0])]
        for states in self._states:
            states.gather()
        left = iter(self._states)
        return [_together(layer, offset, left) for layer in zip(*(live.caches for live in self.lives), strict=True)]

    def fed(self) -> None:
        """The call's graph is built."""
        for states in self._states:
            states.scatter()
        for live in self.lives:
            live.drop_views()

    def _leaves(self) -> list[tuple[Any, ...]]:
        return list(zip(*(live.leaves for live in self.lives), strict=True))


def _together(layer: Sequence[Any], offset: mx.array, states: Iterator[StatesTogether]) -> Any:
    """One entry of the cache list, from the entries of the sequences' lists."""
    if type(layer[0]).__name__ == "CacheList":
        parts = zip(*(cache.caches for cache in layer), strict=True)
        return type(layer[0])(*(_together(part, offset, states) for part in parts))
    return next(states).whole if _holds_states(layer[0]) else RowsTogether(layer, offset)


def _holds_states(leaf: Any) -> bool:
    return type(leaf).__name__ == "ArraysCache"


def _same(held: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(held) == len(given) and all(a is b for a, b in zip(held, given, strict=True))


def _parted(pairs: Iterable[tuple[Any, Any]]) -> tuple[PerSequence, PerSequence]:
    keys, values = zip(*pairs, strict=True)
    return PerSequence(keys), PerSequence(values)
