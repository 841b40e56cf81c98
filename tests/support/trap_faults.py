"""Faults that other engines had, planted into this one. All take pytest's monkeypatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from mlxchat.cache import checkpoint, lookup, planner, reader, restore
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.cache.coverage import Coverage, Piece
from mlxchat.cache.index import Index
from mlxchat.cache.intake import Intake
from mlxchat.cache.layers import row_bytes
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Planner
from mlxchat.cache.records import decode
from mlxchat.cache.room import Room
from mlxchat.cache.store import Store
from mlxchat.engine.reuse import Reuse
from support.kvstore import fill_unchecked


def all_or_nothing_trims(monkeypatch: Any) -> None:
    """Only a prompt that goes on from the live end is reused."""
    monkeypatch.setattr(Coverage, "covers", lambda self, position: False)
    monkeypatch.setattr(LiveCache, "rows_reach", lambda self, group, position: position == self.length)


def no_states_at_marks(monkeypatch: Any) -> None:
    monkeypatch.setattr(LiveCache, "hold_state", lambda self, kind: None)


def unchecked_trims(monkeypatch: Any) -> None:
    """A window is trimmed however far it has moved on."""

    def trim_rows(self: Any, group: Any, position: int, length: int) -> None:
        for index, _ in group.leaves:
            self.leaves[index].offset = position  # the rows of a window stay the newest

    monkeypatch.setattr(LiveCache, "trim_rows", trim_rows)
    monkeypatch.setattr(LiveCache, "rows_reach", lambda self, group, position: position <= self.length)


def shared_buffers(monkeypatch: Any) -> None:
    """Every restore of a size gets the same arrays."""
    known: dict[Any, Any] = {}
    real = restore.empty_rows
    count = [0]

    def allocate(*wanted: Any) -> Any:
        count[0] += 1
        number = (count[0] - 1) % 6  # qwen3: keys and values of three layers
        return known.setdefault((number, *wanted), real(*wanted))

    monkeypatch.setattr(restore, "empty_rows", allocate)


def whole_buffers_stored(monkeypatch: Any) -> None:
    """A tail is written with all that its buffer has room for."""
    real = Checkpointer._gather

    def gather(self: Any, group: Any, start: int, end: int) -> Any:
        index, reader_ = group.leaves[0]
        return real(self, group, start, max(end, reader_.tensors(self._live.leaves[index])[0].shape[2]))

    monkeypatch.setattr(Checkpointer, "_gather", gather)


def captured_in_ring_order(monkeypatch: Any) -> None:
    real = checkpoint.row_bytes

    def turned(tensor: mx.array) -> Any:
        return np.roll(real(tensor), 1, axis=1)

    monkeypatch.setattr(checkpoint, "row_bytes", turned)


def stale_head_room(monkeypatch: Any) -> None:
    """Fresh buffers hold what was in that memory before."""
    real = restore.empty_rows

    def allocate(*wanted: Any) -> Any:
        made = real(*wanted)
        row_bytes(made)[:] = 0x41
        return made

    monkeypatch.setattr(restore, "empty_rows", allocate)


def ids_not_compared(monkeypatch: Any) -> None:
    """Whatever stands below an edge is taken for what was asked for."""
    monkeypatch.setattr(lookup, "common_prefix", lambda a, b: min(len(a), len(b)))


def nothing_verified(monkeypatch: Any) -> None:
    """Records are taken as they come."""

    def unverified(entry: Any, record: memoryview) -> Any:
        at, found = entry.header.blob_offset + len(entry.header.safetensors_header), {}
        for spec in entry.header.tensors:
            found[spec.name] = record[at : at + spec.nbytes]
            at += spec.nbytes
        return found

    monkeypatch.setattr(reader, "verified", unverified)
    monkeypatch.setattr(reader.Reader, "_read_in_place", fill_unchecked)


def any_valid_record(monkeypatch: Any) -> None:
    """A record that is whole is taken for the one that was wanted."""
    monkeypatch.setattr(reader, "verified", lambda entry, record: decode(record)[1])
    monkeypatch.setattr(reader.Reader, "_read_in_place", fill_unchecked)


def failed_reads_forgotten(monkeypatch: Any) -> None:
    real = Store.read

    def read(self: Any, jobs: Any) -> list[Any]:
        real(self, jobs)
        return []

    monkeypatch.setattr(Store, "read", read)


def states_restored_alone(monkeypatch: Any) -> None:
    """A recurrent layer stays as it is where its state is missing."""
    real = planner.Planner._candidates

    def candidates(self: Any, prospect: Any, limit: int) -> set[int]:
        ends = {min(end, limit) for cover in prospect.coverage.values() for end in cover.ends()}
        return (real(self, prospect, limit) | ends) - {0}

    build = planner.Planner._build

    def build_anyway(self: Any, prospect: Any, position: int, reason: Any) -> Any:
        prospect.states.setdefault(position, None)
        return build(self, prospect, position, reason)

    monkeypatch.setattr(Planner, "_candidates", candidates)
    monkeypatch.setattr(Planner, "_build", build_anyway)
    monkeypatch.setattr(LiveCache, "set_states", lambda self, position: None)
    monkeypatch.setattr(LiveCache, "check", lambda self: None)


def large_blocks(monkeypatch: Any) -> None:
    """Only multiples of 1024 are restored."""
    real = Planner.plan
    monkeypatch.setattr(
        Planner,
        "plan",
        lambda self, ids, keys, live, limit, *more: real(self, ids, keys, live, limit // 1024 * 1024, *more),
    )


def budget_of_some_records(monkeypatch: Any) -> None:
    real = Room.make

    def make(self: Any, entry: Any) -> Any:
        self.budget, kept = 2 * self.budget, self.budget
        try:
            return real(self, entry)
        finally:
            self.budget = kept

    monkeypatch.setattr(Room, "make", make)


def holes_not_seen(monkeypatch: Any) -> None:
    """The last record of a chain is taken for all of it."""

    def covers(self: Any, position: int) -> bool:
        wanted = self._blocks_for(position)
        return self._record(wanted.stop - 1, position) is not None

    def pieces(self: Any, position: int) -> Any:
        found = [(block, self._record(block, position)) for block in self._blocks_for(position)]
        return tuple(
            Piece(entry, block * 256, min(position, (block + 1) * 256)) for block, entry in found if entry is not None
        )

    monkeypatch.setattr(Coverage, "covers", covers)
    monkeypatch.setattr(Coverage, "pieces", pieces)


def oldest_first(monkeypatch: Any) -> None:
    """Records are evicted in the order in which they came."""
    monkeypatch.setattr(Index, "touch", lambda self, places, entries=(): None)


def written_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(Store, "contains", lambda *given: False)
    monkeypatch.setattr(Intake, "_is_present", lambda self, header: False)


def dropped_reasoning_written(monkeypatch: Any) -> None:
    real = Reuse.record_decode
    monkeypatch.setattr(Reuse, "record_decode", lambda self, sequence, dropped: real(self, sequence, False))


def no_reasons(monkeypatch: Any) -> None:
    monkeypatch.setattr(Planner, "_reason", lambda self, *given: "none")


def branches_not_kept(monkeypatch: Any) -> None:
    monkeypatch.setattr(Reuse, "_keep_branch", lambda self, sequence, plan: None)


def no_tails(monkeypatch: Any) -> None:
    monkeypatch.setattr(Checkpointer, "tail", lambda self, position, wait: None)


def arrays_on_the_readers_thread(monkeypatch: Any) -> None:
    """The reader computes with an array that the engine thread began and didn't evaluate."""
    real: Callable[..., Any] = restore.Buffers.sink

    def sink(self: Any, piece: Any) -> Any:
        copy, lazy = real(self, piece), mx.zeros((4,), stream=mx.new_stream(mx.cpu)) + 1

        def compute(tensors: Any) -> None:
            mx.eval(lazy)
            copy(tensors)

        return compute

    monkeypatch.setattr(restore.Buffers, "sink", sink)
