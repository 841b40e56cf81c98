"""The reader thread: brings records back, verified, and hands each to its sink.

Host bytes only: nothing here knows MLX. Neighbouring extents come in one read, into a buffer that is used again; what
goes straight to its place is read by several threads where there is much of it.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, Protocol, runtime_checkable

from .counters import Counters
from .index import Entry, Index
from .read_ahead import Walk, announce
from .records import BadRecord, checksum_so_far, decode, record_head, stored_checksum
from .scratch import Extent, ScratchFile

RUN_BYTES: Final = 16 * 1024 * 1024
"""Neighbours are read together up to this many bytes; a larger record is read alone, tensor by tensor."""

ALONE_BYTES: Final = 8 * 1024 * 1024
"""Up to this many bytes in place are read by the reader alone."""
MOST_THREADS: Final = min(4, os.cpu_count() or 1)

Sink = Callable[[dict[str, memoryview]], None]
"""Gets a record's tensors by name, as flat byte views that are valid until it returns. Runs on the reader thread.

A large record's tensors come one by one, before its checksum can be known: what a sink got of a record that `read` then
reports as failed means nothing.
"""


@runtime_checkable
class InPlace(Protocol):
    """A sink that also says where each tensor's bytes belong, if they are to go there without a copy.

    It is called all the same where the record is still in memory. Nobody may use the places before the batch is done.
    """

    def places(self, name: str) -> Sequence[memoryview]:
        """Flat views to be filled one after another; together as long as the tensor."""
        ...

    def __call__(self, tensors: dict[str, memoryview]) -> None:
        """As any sink."""
        ...


Job = tuple[Entry, Sink | InPlace]
_Stored = tuple[Extent, Job]


@dataclass
class Batch:
    """Jobs on their way. `failed` are those that could not be read, with why; `raised` is what a sink raised."""

    jobs: Sequence[Job]
    failed: list[tuple[Entry, Exception]] = field(default_factory=list)
    raised: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Reader:
    """One thread. The caller keeps the entries of a batch pinned until it is done.

    meanwhile   is called again and again while a batch is waited for, on the thread that waits; it says whether it had
                anything to do
    """

    def __init__(self, index: Index, scratch: ScratchFile, counters: Counters) -> None:
        self._index = index
        self._scratch = scratch
        self._counters = counters
        self._waiting: SimpleQueue[Batch | None] = SimpleQueue()
        self._buffer = bytearray()
        self.meanwhile: Callable[[], bool] | None = None
        self._thread = threading.Thread(target=self._run, name="mlxchat-kv-reader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def read(self, jobs: Sequence[Job]) -> Batch:
        """Read all jobs and wait for the last sink to return. With the thread gone, every job fails."""
        batch = Batch(jobs)
        self._waiting.put(batch)
        busy = True
        while not batch.done.wait(0 if busy else 0.5):
            busy = self.meanwhile is not None and self.meanwhile()
            if not self._thread.is_alive():
                return Batch(jobs, [(entry, OSError("the reader has stopped")) for entry, _ in jobs])
        return batch

    def expect(self, entries: Iterable[Entry]) -> None:
        """Have the disk begin to bring these, which will be read soon. Any thread."""
        with self._index.lock:
            extents = [entry.extent for entry in entries if entry.extent is not None]
        announce(self._scratch, extents)

    def close(self, timeout: float) -> bool:
        """End the thread after the batches in hand; whether it has ended within `timeout` seconds."""
        self._waiting.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (batch := self._waiting.get()) is not None:
            try:
                self._serve(batch)
            except Exception as error:
                batch.raised = error
            if len(self._buffer) > RUN_BYTES:
                self._buffer = bytearray()
            batch.done.set()

    def _serve(self, batch: Batch) -> None:
        stored: list[_Stored] = []
        held: list[tuple[Job, tuple[memoryview, ...]]] = []
        with self._index.lock:
            for job in batch.jobs:
                entry = job[0]
                if entry.payload is not None:
                    held.append((job, entry.payload))
                elif entry.extent is not None:
                    stored.append((entry.extent, job))
                else:
                    batch.failed.append((entry, BadRecord("the record is gone")))
        for (entry, sink), payload in held:
            names = (spec.name for spec in entry.header.tensors)
            sink({name: view.toreadonly() for name, view in zip(names, payload, strict=True)})
        whole, parts = _by_way(sorted(stored, key=lambda item: item[0]))
        with self._index.lock:
            self._counters.bytes_read += sum(extent.length for extent, _ in whole)
        self._read_whole(batch, whole)
        for run in _runs(parts):
            if run[0][0].length > RUN_BYTES:
                self._read_large(batch, *run[0])
            else:
                self._read_run(batch, run)

    def _read_whole(self, batch: Batch, whole: Sequence[_Stored]) -> None:
        """All in place, by as many threads as the bytes are worth; they are over when this returns."""
        walk = Walk(whole, self._scratch)
        many = min(MOST_THREADS, len(whole)) if sum(extent.length for extent, _ in whole) > ALONE_BYTES else 1
        others = [
            threading.Thread(target=self._read_next, args=(batch, walk), name=f"mlxchat-kv-reader-{n}", daemon=True)
            for n in range(1, many)
        ]
        started: list[threading.Thread] = []
        try:
            for thread in others:
                thread.start()
                started.append(thread)
        except RuntimeError:  # the system has no more threads: fewer do
            pass
        self._read_next(batch, walk)
        for thread in started:
            thread.join()

    def _read_next(self, batch: Batch, walk: Walk[Job]) -> None:
        try:
            while (item := walk.take()) is not None:
                self._read_in_place(batch, *item)
        except Exception as error:
            batch.raised = error

    def _read_in_place(self, batch: Batch, extent: Extent, job: Job) -> None:
        """One record straight to where its tensors belong, each checked while it is still in the processor's cache.

        What is filled is fresh: a record that turns out bad leaves nothing behind that anyone uses.
        """
        entry, sink = job
        expected = record_head(entry.header, entry.checksum)
        head, checksum, offset = memoryview(bytearray(len(expected))), 0, extent.offset
        try:
            self._scratch.read_into(offset, head)
            if head != expected:
                raise BadRecord("another record stands in its place")
            checksum, offset = checksum_so_far(head), offset + len(head)
            for spec in entry.header.tensors:
                places = sink.places(spec.name)  # type: ignore[union-attr]
                self._scratch.read_into(offset, *places)
                for place in places:
                    checksum = zlib.crc32(place, checksum)
                offset += spec.nbytes
            if checksum != entry.checksum:
                raise BadRecord("a record whose checksum is wrong")
        except (OSError, BadRecord) as error:
            batch.failed.append((entry, error))

    def _read_large(self, batch: Batch, extent: Extent, job: Job) -> None:
        """One record through a buffer of its largest tensor: a state may be as large as all else that is restored."""
        entry, sink = job
        try:
            self._stream(extent, entry, sink)
        except (OSError, BadRecord) as error:
            batch.failed.append((entry, error))

    def _stream(self, extent: Extent, entry: Entry, sink: Sink) -> None:
        expected = record_head(entry.header, entry.checksum)
        head = self._read(extent.offset, len(expected))
        if head != expected:
            raise BadRecord("another record stands in its place")
        checksum, offset = checksum_so_far(head), extent.offset + len(head)
        for spec in entry.header.tensors:
            tensor = self._read(offset, spec.nbytes)
            checksum, offset = zlib.crc32(tensor, checksum), offset + spec.nbytes
            sink({spec.name: tensor.toreadonly()})
        if checksum != entry.checksum:
            raise BadRecord("a record whose checksum is wrong")

    def _read(self, offset: int, length: int) -> memoryview:
        """Bytes of the file, in the buffer that is used again. OSError as from the disk."""
        if len(self._buffer) < length:
            self._buffer = bytearray(max(length, RUN_BYTES))
        view = memoryview(self._buffer)[:length]
        self._scratch.read_into(offset, view)
        with self._index.lock:
            self._counters.bytes_read += length
        return view

    def _read_run(self, batch: Batch, run: Sequence[_Stored]) -> None:
        """Read neighbours at once; if that fails, each alone, so that one bad spot costs one record."""
        start, length = run[0][0].offset, run[-1][0].end - run[0][0].offset
        try:
            view = self._read(start, length)
        except OSError as error:
            if len(run) == 1:
                batch.failed.append((run[0][1][0], error))
                return
            for alone in run:
                self._read_run(batch, [alone])
            return
        for extent, (entry, sink) in run:
            try:
                tensors = verified(entry, view[extent.offset - start : extent.end - start])
            except BadRecord as error:
                batch.failed.append((entry, error))
                continue
            sink(tensors)


def verified(entry: Entry, record: memoryview) -> dict[str, memoryview]:
    """Views of the tensors of `record`, which must be exactly the one that `entry` stands for (BadRecord if not)."""
    header, tensors = decode(record)
    if header != entry.header:
        raise BadRecord("another record stands in its place")
    if stored_checksum(record) != entry.checksum:
        raise BadRecord("another version of the record stands in its place")
    return {name: view.toreadonly() for name, view in tensors.items()}


def _by_way(stored: Sequence[_Stored]) -> tuple[list[_Stored], list[_Stored]]:
    """Those to be read in place, and the others."""
    whole = [item for item in stored if isinstance(item[1][1], InPlace)]
    return whole, [item for item in stored if not isinstance(item[1][1], InPlace)]


def _runs(stored: Sequence[_Stored]) -> list[list[_Stored]]:
    """Neighbours put together, in the file's order."""
    runs: list[list[_Stored]] = []
    for item in sorted(stored, key=lambda item: item[0]):
        extent = item[0]
        last = runs[-1] if runs else []
        if last and last[-1][0].end == extent.offset and extent.end - last[0][0].offset <= RUN_BYTES:
            last.append(item)
        else:
            runs.append([item])
    return runs
