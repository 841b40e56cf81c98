"""Copies KV from live cache objects to the store: blocks as calls complete them, tails at anchors, states.

A row is written once: a record holds those of its block that no record before it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from .keys import BLOCK, Place
from .layers import DTYPE_NAMES, RowGroup, host_view, row_bytes
from .live import HeldState, LiveCache
from .records import Buffer, TensorSpec
from .store import Store


class Checkpointer:
    """Writes one live sequence's KV. Engine thread only; every array it reads must have been evaluated.

    `bytes_written` counts what was handed to the writer. A record that the store already has, or can't take,
    costs nothing and is no error: reuse is shorter, the answer is the same. `holes` are the numbers of blocks that
    were not taken, because the queue was full or the disk is left alone. `user` is the conversation's name.
    """

    def __init__(self, store: Store, live: LiveCache, user: str = "") -> None:
        self._store = store
        self._live = live
        self._user = user
        self.bytes_written = 0
        self.holes: set[int] = set()

    def blocks(self, start: int, end: int, *, wait: bool) -> None:
        """Submit what is missing of every block whose last row lies in (start, end].

        Prefill may `wait` for the queue, decode never.
        """
        for block in range(start // BLOCK, end // BLOCK):
            self._rows(block * BLOCK, (block + 1) * BLOCK, wait)

    def tail(self, position: int, *, wait: bool) -> None:
        """Submit the rest of the rows between the last block edge and `position`."""
        if position % BLOCK:
            self._rows(position // BLOCK * BLOCK, position, wait)

    def state(self, held: HeldState, *, wait: bool) -> None:
        """Submit a recurrent state held by reference."""
        layout = self._live.layout.states
        assert layout is not None
        place = self._place(held.position)
        if not self._store.accepts or self._store.contains(place, layout.name, self._user):
            return
        tensors, payload = [], []
        for leaf, arrays in zip(layout.leaves, held.arrays, strict=True):
            for number, array in enumerate(arrays):
                if array is not None:
                    mx.eval(array)
                    tensors.append(TensorSpec(f"{leaf}.{number}", DTYPE_NAMES[array.dtype], tuple(array.shape)))
                    payload.append(host_view(array).tobytes() if array.nbytes else b"")
        self._submit(place, layout.name, held.position, held.position, tensors, payload, wait)

    def _rows(self, start: int, end: int, wait: bool) -> None:
        if not self._store.accepts:  # before the copy, not after it
            self._note_hole(end)
            return
        place = self._place(end)
        for group in self._live.layout.rows:
            # When a sequence is parked, its window may begin inside this block: the rows there are still count.
            first = max(start, self._live.first_row(group))
            if first < end:  # a row is written once: what an earlier end of this block holds is left out
                first = self._store.rows_held(place, group.name, (first, end), self._user)
            if first < end:
                tensors, payload = self._gather(group, first, end)
                self._submit(place, group.name, end, first, tensors, payload, wait, _urgency(group, wait))

    def _note_hole(self, end: int) -> None:
        if end % BLOCK == 0:
            self.holes.add(end // BLOCK - 1)

    def _gather(self, group: RowGroup, start: int, end: int) -> tuple[list[TensorSpec], list[memoryview]]:
        """Rows [start, end) of every leaf in one host buffer, layer after layer: one copy, one write."""
        specs, views = [], []
        for index, reader in group.leaves:
            leaf = self._live.leaves[index]
            first = reader.first_row(leaf)
            for number, tensor in enumerate(reader.tensors(leaf)):
                _, heads, _, width = tensor.shape
                specs.append(TensorSpec(f"{index}.{number}", DTYPE_NAMES[tensor.dtype], (heads, end - start, width)))
                views.append(row_bytes(tensor)[:, start - first : end - first])
        buffer = self._store.buffers.take(sum(view.size for view in views))
        payload, filled = [], 0
        for view in views:
            part = buffer[filled : filled + view.size]
            part.reshape(view.shape)[...] = view
            payload.append(part.data)
            filled += view.size
        return specs, payload

    def _place(self, position: int) -> Place:
        return Place.at(self._live.chain.keys, self._live.ids, position)

    def _submit(
        self,
        place: Place,
        group: str,
        position: int,
        row_start: int,
        tensors: list[TensorSpec],
        payload: Sequence[Buffer],
        wait: bool,
        urgency: int = 2,
    ) -> None:
        outcome = self._store.submit(
            place, group, position, row_start, tensors, payload, wait=wait, priority=urgency, user=self._user
        )
        if outcome == "queued":
            self.bytes_written += sum(spec.nbytes for spec in tensors)
        elif outcome in ("full", "off"):
            self._note_hole(position)


def _urgency(group: RowGroup, wait: bool) -> int:
    """What makes room for what in a full queue: local blocks of decode for its global ones, neither for a prompt's."""
    if wait:
        return 2
    return 1 if group.window is None else 0
