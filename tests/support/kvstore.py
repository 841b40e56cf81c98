"""A disk that fails on command, and records whose bytes follow from what they are."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mlxchat.cache.files import FileSystem
from mlxchat.cache.index import Entry
from mlxchat.cache.keys import BLOCK, Ids, Place, chain_keys, namespace_key
from mlxchat.cache.records import RecordHeader, TensorSpec
from mlxchat.cache.store import Store, Submitted

NAMESPACE = namespace_key({"weights": "none", "dtype": "F32"})
MIB = 1024 * 1024
GATE_PATIENCE_S = 300


def io_error(number: int = errno.EIO) -> OSError:
    return OSError(number, os.strerror(number))


class FaultyFiles(FileSystem):
    """The real file system until told otherwise. `write_room` is how many bytes the disk still takes."""

    def __init__(self) -> None:
        self.write_error: OSError | None = None
        self.write_crash: BaseException | None = None
        self.write_room: int | None = None
        self.read_error: OSError | None = None
        self.bad_from: int | None = None
        self.end_at: int | None = None
        self.truncate_error: OSError | None = None
        self.most_at_once: int | None = None
        self.reads = 0
        self.descriptor = -1
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()
        self.held = False

    def open_unlinked(self, directory: Path) -> int:
        self.descriptor = super().open_unlinked(directory)
        return self.descriptor

    def pwritev(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        self.arrived.set()
        self.held = True
        assert self.gate.wait(GATE_PATIENCE_S), "the test never opened the gate"
        self.held = False
        if self.write_crash is not None:
            raise self.write_crash
        if self.write_error is not None:
            raise self.write_error
        most = self.most_at_once
        if self.write_room is not None:
            if not self.write_room:
                raise io_error(errno.ENOSPC)
            most = min(most or self.write_room, self.write_room)
        if most is not None:
            buffers = [buffers[0][:most]]
        written = super().pwritev(descriptor, buffers, offset)
        if self.write_room is not None:
            self.write_room -= written
        return written

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        buffer = buffers[0]  # a disk that gives less than it was asked for
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        if self.bad_from is not None and offset + buffer.nbytes > self.bad_from:
            raise io_error()
        if self.end_at is not None:
            buffer = buffer[: max(0, self.end_at - offset)]
            if not buffer.nbytes:
                return 0
        return super().preadv(descriptor, [buffer[: self.most_at_once]], offset)

    def ftruncate(self, descriptor: int, length: int) -> None:
        if self.truncate_error is not None:
            raise self.truncate_error
        super().ftruncate(descriptor, length)


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def random_ids(n: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).integers(0, 50_000, n).astype(np.int32)


def specs(floats: int = 64) -> tuple[TensorSpec, ...]:
    """Two tensors of `floats` float32 each."""
    return (TensorSpec("0.keys", "F32", (1, 1, 1, floats)), TensorSpec("0.values", "F32", (1, 1, floats, 1)))


def payload(place: Place, group: str, tensors: Sequence[TensorSpec]) -> list[memoryview]:
    """Bytes that no other place or group has."""
    seed = hashlib.sha256(place.parent + place.ids + group.encode()).digest()
    rng = np.random.default_rng(list(seed))
    return [memoryview(rng.bytes(spec.nbytes)) for spec in tensors]


class Line:
    """A sequence with its chain keys, to name places by position."""

    def __init__(self, ids: Ids, namespace: bytes = NAMESPACE) -> None:
        self.ids = ids
        self.keys = chain_keys(namespace, ids)

    def place(self, position: int) -> Place:
        return Place.at(self.keys, self.ids, position)

    def blocks(self) -> list[Place]:
        return [self.place(end) for end in range(BLOCK, self.ids.size + 1, BLOCK)]


def put(
    store: Store,
    place: Place,
    position: int,
    group: str = "global",
    floats: int = 64,
    *,
    wait: bool = False,
    priority: int = 0,
    user: str = "",
) -> Submitted:
    """Submit the record that belongs at a place."""
    tensors = specs(floats)
    row_start = position - place.length
    data = payload(place, group, tensors)
    return store.submit(place, group, position, row_start, tensors, data, wait=wait, priority=priority, user=user)


def record_bytes(floats: int = 64) -> int:
    """Bytes that `put` stores for a full block."""
    place = Place(bytes(32), bytes(4 * BLOCK))
    return RecordHeader(NAMESPACE, "global", place, BLOCK, 0, specs(floats)).nbytes


def entry_at(store: Store, place: Place, group: str = "global") -> Entry:
    """The entry at a place; KeyError if it is not stored."""
    match = store.block(place.parent, place.elements)
    if match is None:
        raise KeyError(group)
    return match.groups[group]


def read_back(store: Store, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Read entries and assert that every byte that came is the right one: (those read, those that failed)."""
    got: list[dict[str, bytes]] = [{} for _ in entries]
    arrived: list[int] = []

    def sink_into(number: int, held: dict[str, bytes]):
        def sink(tensors: dict[str, memoryview]) -> None:
            assert not held.keys() & tensors.keys()
            if not held:
                arrived.append(number)
            held.update({name: bytes(view) for name, view in tensors.items()})

        return sink

    failed = store.read([(entry, sink_into(number, got[number])) for number, entry in enumerate(entries)])
    came = []
    for number in arrived:
        entry, held = entries[number], got[number]
        if entry not in failed:
            header = entry.header
            expected = payload(header.place, header.group, header.tensors)
            assert list(held) == [spec.name for spec in header.tensors]
            assert list(held.values()) == [bytes(view) for view in expected]
            came.append(entry)
    assert len(came) + len(failed) == len(entries)
    return came, failed


def fill_unchecked(self: Any, _batch: Any, extent: Any, job: Any) -> None:
    """A planted `Reader._read_in_place` that believes whatever stands in a record's place."""
    entry, sink = job
    start = extent.offset + entry.nbytes - entry.header.payload_bytes
    for spec in entry.header.tensors:
        self._scratch.read_into(start, *sink.places(spec.name))
        start += spec.nbytes
