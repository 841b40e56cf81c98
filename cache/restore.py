"""Carries out a plan: reads records into fresh buffers and sets the cache objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from .coverage import Piece
from .index import Entry
from .keys import Ids
from .layers import Bytes, RowGroup, empty_rows, row_bytes
from .live import LiveCache
from .planner import Plan
from .reader import Job
from .records import TensorSpec
from .store import Store
from .tensors import TensorSink, cleared_tensors
from .window import SLACK

Sink = Callable[[dict[str, memoryview]], None]


class OutOfMemory(Exception):
    """The buffers of a restore can't be allocated."""


@dataclass
class Buffers:
    """The new row buffers of one group: tensor name → array, and its host view once it is evaluated (`open`)."""

    group: RowGroup
    first: int
    arrays: dict[str, mx.array] = field(default_factory=dict)
    views: dict[str, Bytes] = field(default_factory=dict)

    @classmethod
    def allocate(cls, group: RowGroup, entry: Entry, first: int, capacity: int) -> Buffers:
        """Zeroed buffers of `capacity` rows, shaped as the record's tensors are, lazy."""
        made = cls(group, first)
        for spec in entry.header.tensors:
            heads, _, width = spec.shape
            made.arrays[spec.name] = empty_rows(spec.dtype, heads, capacity, width)
        return made

    def open(self) -> None:
        """Look at the arrays' bytes, [heads, capacity, bytes per row]. They have been evaluated."""
        self.views = {name: row_bytes(array) for name, array in self.arrays.items()}

    def sink(self, piece: Piece) -> Sink:
        """Takes the piece's rows out of a record; runs on the reader thread, which knows no MLX."""
        header = piece.entry.header
        shapes = {spec.name: _byte_shape(spec) for spec in header.tensors}
        source = slice(piece.start - header.row_start, piece.end - header.row_start)
        target = slice(piece.start - self.first, piece.end - self.first)
        whole = (piece.start, piece.end) == (header.row_start, header.position)
        return (WholeRowSink if whole else RowSink)(self.views, shapes, source, target)


@dataclass(frozen=True)
class RowSink:
    """Copies rows `source` of a checked record to rows `target` of the buffers. `shapes` are the record's, in bytes."""

    views: dict[str, Bytes]
    shapes: dict[str, tuple[int, int, int]]
    source: slice
    target: slice

    def __call__(self, tensors: dict[str, memoryview]) -> None:
        """Copy."""
        for name, data in tensors.items():
            rows = np.frombuffer(data, np.uint8).reshape(self.shapes[name])
            self.views[name][:, self.target] = rows[:, self.source]


class WholeRowSink(RowSink):
    """All rows of a record are wanted: they can be read where they belong, head by head."""

    def places(self, name: str) -> list[memoryview]:
        """One view for each head."""
        return [head[self.target].reshape(-1).data for head in self.views[name]]


def _byte_shape(spec: TensorSpec) -> tuple[int, int, int]:
    heads, rows, width = spec.shape
    return heads, rows, spec.nbytes // max(1, heads * rows) if width else 0


def restore(plan: Plan, store: Store, live: LiveCache, ids: Ids, room: int) -> tuple[bool, int]:
    """Set every layer of `live` to plan.position; returns (whether it worked, bytes read).

    `live` is the live sequence that the plan looked at, or a fresh one. On failure (a record was bad: the store has
    dropped it) nothing of `live` has been changed: plan again. `room` is how many rows past the position the buffers
    should have, so that the next calls don't reallocate. Unpins the plan's entries in any case. OutOfMemory if the
    buffers, or the reader's own, can't be had.
    """
    try:
        store.expect(plan.entries)  # the disk works while the buffers are cleared
        made, state = _allocated([group for group in live.layout.rows if plan.rows[group.name]], plan, room)
        jobs = [(piece.entry, buffers.sink(piece)) for buffers in made for piece in plan.rows[buffers.group.name] or ()]
        if plan.state is not None:
            jobs.append((plan.state, TensorSink.into(state)))
        if jobs and _read(store, jobs):
            return False, 0
    finally:
        store.unpin(plan.entries)
    _install(plan, live, ids, made, state)
    return True, sum(entry.nbytes for entry in plan.entries)


def _read(store: Store, jobs: Sequence[Job]) -> list[Entry]:
    """The entries that failed."""
    try:
        return store.read(jobs)
    except MemoryError as error:
        raise OutOfMemory(str(error)) from error


def _allocated(groups: list[RowGroup], plan: Plan, room: int) -> tuple[list[Buffers], dict[str, mx.array]]:
    """What the records go into, all of it cleared by one evaluation: the groups' buffers, and the state's tensors."""
    try:
        made = [_group_buffers(group, plan, room) for group in groups]
        state = {} if plan.state is None else cleared_tensors(plan.state)
        mx.eval([buffers.arrays for buffers in made], state)
        for buffers in made:
            buffers.open()
        return made, state
    except (MemoryError, RuntimeError) as error:  # what was free when it was asked is not any more
        raise OutOfMemory(str(error)) from error


def needed_bytes(plan: Plan, groups: Iterable[RowGroup], room: int) -> int:
    """What `restore` will allocate for cache buffers, to be asked before it reads anything."""
    state = 0 if plan.state is None else plan.state.header.payload_bytes
    return state + sum(
        _capacity(group, pieces[0].start, plan.position, room) * row_size(pieces[0])
        for group in groups
        if (pieces := plan.rows.get(group.name))
    )


def rows_that_fit(plan: Plan, groups: Iterable[RowGroup], nbytes: int) -> int:
    """The last position to which a shorter plan of the same kind can have buffers of `nbytes`; 0 if none can."""
    groups = tuple(groups)
    growing = sum(row_size(pieces[0]) for group in groups if group.window is None and (pieces := plan.rows[group.name]))
    fixed = needed_bytes(plan, (group for group in groups if group.window is not None), 0)
    return max(0, nbytes - fixed) // max(1, growing) // 256 * 256


def row_size(piece: Piece) -> int:
    """Bytes of one row in all layers of the piece's group."""
    return sum(spec.nbytes // max(1, spec.shape[1]) for spec in piece.entry.header.tensors)


def _capacity(group: RowGroup, first: int, position: int, room: int) -> int:
    """Rows that the buffers of a group get."""
    space = room if group.window is None else SLACK
    return -(-(position - first + space) // 256) * 256


def _group_buffers(group: RowGroup, plan: Plan, room: int) -> Buffers:
    pieces = plan.rows[group.name]
    assert pieces
    first = pieces[0].start
    return Buffers.allocate(group, pieces[0].entry, first, _capacity(group, first, plan.position, room))


def _install(plan: Plan, live: LiveCache, ids: Ids, made: list[Buffers], state: dict[str, mx.array]) -> None:
    """The only place that changes cache objects: trims what stays in memory, sets what was read."""
    position, length = plan.position, live.length
    by_name = {buffers.group.name: buffers for buffers in made}
    for group in live.layout.rows:
        buffers = by_name.get(group.name)
        if buffers is None:
            live.trim_rows(group, position, length)
            continue
        buffers.views.clear()
        for index, reader in group.leaves:
            names = sorted(
                (n for n in buffers.arrays if n.split(".")[0] == str(index)), key=lambda n: int(n.split(".")[1])
            )
            reader.install(live.leaves[index], [buffers.arrays[n] for n in names], position, position - buffers.first)
    if live.layout.states is not None:
        if plan.state is None:
            live.set_states(position)
        else:
            for index in live.layout.states.leaves:
                cache = live.leaves[index].cache
                live.leaves[index].cache = [state.get(f"{index}.{number}") for number in range(len(cache))]
    live.truncate(min(position, length))
    live.set_ids(ids[:position])
    live.check()
