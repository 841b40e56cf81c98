"""What one live sequence holds in memory: the ids fed, the cache objects, and recurrent states kept by reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from .keys import BLOCK, Chain, Ids, Span, elements
from .layers import Layout, RowGroup, flatten
from .window import WindowKVCache


@dataclass(frozen=True)
class HeldState:
    """The recurrent layers' state at `position`; the arrays are never written to, models replace them."""

    position: int
    kind: str
    arrays: tuple[tuple[mx.array | None, ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that this reference keeps alive."""
        return sum(a.nbytes for leaf in self.arrays for a in leaf if a is not None)


class LiveCache:
    """The live KV of one sequence. `pictures` are those of its prompt; they stand for themselves in `ids`.

    `owner` is the conversation's name, "" for a run that leaves nothing behind.

    ------------------------------- ownership -------------------------------
    Only the engine thread touches a LiveCache. `caches` are handed to the model, which writes rows and replaces
    states; everything else here changes through the methods below, each of which leaves
    `len(ids) == offset of every row leaf` (`check` asserts it).
    -------------------------------------------------------------------------
    """

    def __init__(self, caches: list[Any], layout: Layout, namespace: bytes) -> None:
        self.caches = caches
        self.layout = layout
        self.chain = Chain(namespace)
        self.leaves = flatten(caches)
        self.states: list[HeldState] = []
        self.pictures: Sequence[Span] = ()
        self.owner = ""
        self._ids = np.empty(1024, np.int32)
        self._length = 0

    @property
    def ids(self) -> Ids:
        """The element of every position fed, int32 [length]; a view, valid until the next change."""
        return self._ids[: self._length]

    @property
    def length(self) -> int:
        """How many positions the caches hold."""
        return self._length

    def append(self, ids: npt.ArrayLike) -> None:
        """Note ids that a call has fed."""
        new = np.asarray(ids, np.int32).reshape(-1)
        end = self._length + len(new)
        if end > len(self._ids):
            self._ids = np.concatenate([self.ids, np.empty(max(end, 1024), np.int32)])
        self._ids[self._length : end] = new
        if self.pictures and self._length < self.pictures[-1].end:
            new = self._elements(self._length, end)
        self._length = end
        self.chain.append(new)

    def _elements(self, start: int, end: int) -> Ids:
        """Turn the ids [start, end) into elements; returns them."""
        for span in self.pictures:
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                shown = elements(np.zeros(span.end - span.start, np.int32), [(0, span.end - span.start, span.digest)])
                self._ids[low:high] = shown[low - span.start : high - span.start]
        return self._ids[start:end]

    def set_ids(self, ids: Ids) -> None:
        """After a restore: the caches now hold exactly these ids."""
        self.chain.truncate(0)
        self._length = 0
        self.append(ids)

    # -- what can be done in memory --------------------------------------------------------------------------

    def first_row(self, group: RowGroup) -> int:
        """The oldest position whose rows the group still holds."""
        return max((reader.first_row(self.leaves[i]) for i, reader in group.leaves), default=0)

    def rows_reach(self, group: RowGroup, position: int) -> bool:
        """Whether the group could be trimmed to `position` (<= length) in memory."""
        return position <= self._length and self.first_row(group) <= group.first_needed(position)

    def state_at(self, position: int) -> bool:
        """Whether the recurrent layers can stand at `position` without a record."""
        return position == self._length or any(held.position == position for held in self.states)

    def trim_rows(self, group: RowGroup, position: int, length: int) -> None:
        """Drop the group's rows from `position` on. Must hold: rows_reach(group, position)."""
        for index, reader in group.leaves:
            dropped = reader.trim(self.leaves[index], length - position)
            assert dropped == length - position, f"layer {index}: trimmed {dropped}, not {length - position}"

    def set_states(self, position: int) -> None:
        """Put the recurrent layers at `position`. Must hold: state_at(position)."""
        if self.layout.states is None or position == self._length:
            return
        held = next(h for h in self.states if h.position == position)
        for index, arrays in zip(self.layout.states.leaves, held.arrays, strict=True):
            self.leaves[index].cache = list(arrays)

    def hold_state(self, kind: str) -> None:
        """Keep the recurrent state of the present end by reference; nothing for models without one."""
        if self.layout.states is not None and all(held.position != self._length for held in self.states):
            self.states.append(self.state_now(kind))

    def state_now(self, kind: str) -> HeldState:
        """The recurrent state of the present end. Must hold: layout.states is not None."""
        assert self.layout.states is not None
        return HeldState(self._length, kind, tuple(tuple(self.leaves[i].cache) for i in self.layout.states.leaves))

    def trim(self, position: int) -> None:
        """Rewind every layer in memory. Must hold: rows_reach of every group, and state_at(position)."""
        for group in self.layout.rows:
            self.trim_rows(group, position, self._length)
        self.set_states(position)
        self.truncate(position)

    def unfeed(self) -> None:
        """After a call that failed half way through the layers: rows that some of them have taken are dropped."""
        for group in self.layout.rows:
            for index, reader in group.leaves:
                reader.trim(self.leaves[index], int(self.leaves[index].offset) - self._length)

    def truncate(self, position: int) -> None:
        """Forget the ids and held states past `position`; the layers have been set already."""
        edge = position // BLOCK * BLOCK
        self.chain.truncate(edge)
        self.chain.append(self._ids[edge:position])
        self._length = position
        self.states = [held for held in self.states if held.position <= position]

    # -- around each call ------------------------------------------------------------------------------------

    def drop_views(self) -> None:
        """Once a call's graph is built."""
        for leaf in self.leaves:
            if isinstance(leaf, WindowKVCache):
                leaf.drop_view()

    def compact(self) -> None:
        """Once a call's blocks are captured."""
        for leaf in self.leaves:
            if isinstance(leaf, WindowKVCache):
                leaf.compact()

    # -- figures ---------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers and held states."""
        return sum(int(leaf.nbytes) for leaf in self.leaves) + self.state_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of the states held by reference."""
        return sum(held.nbytes for held in self.states)

    def check(self) -> None:
        """Assert that every row leaf stands at the sequence's end."""
        for group in self.layout.rows:
            for index, _ in group.leaves:
                offset = int(self.leaves[index].offset)
                assert offset == self._length, f"layer {index} stands at {offset}, the sequence at {self._length}"
