"""The store of KV records: what the planner and the engine call. Index, scratch file, writer and reader behind it.

Nothing here raises for the disk once the store is open: a record that can't be written is dropped and counted, one
that can't be read is a miss.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from ..errors import CacheTrouble
from .counters import Counters, StoreStats
from .files import FileSystem
from .index import Entry, Index
from .keys import Ids, Place
from .lookup import Match as Match
from .lookup import match_exactly, matches_below
from .reader import Job, Reader
from .records import BadRecord, Buffer, RecordHeader, TensorSpec, payload_views
from .room import Room
from .scratch import ScratchFile
from .writer import Report, Writer

Submitted = Literal["queued", "present", "full", "too_large", "off"]
_CLOSE_TIMEOUT_S: Final = 10.0


class Store:
    """Records of one namespace, in a scratch file in `directory` that is at most `budget_bytes` long.

    `on_trouble` gets one line, once for each kind of trouble, from any thread. CacheTrouble if the directory can't be
    used.
    """

    def __init__(
        self,
        directory: Path,
        namespace: bytes,
        budget_bytes: int,
        queue_bytes: int,
        on_trouble: Report,
        files: FileSystem | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._scratch = ScratchFile(directory, files)
        except OSError as error:
            raise CacheTrouble(
                f"can't keep a KV cache in {directory}: {error.strerror or error}",
                "name another folder with --cache-dir, or chat with --no-cache",
            ) from error
        self.namespace = namespace
        self._on_trouble = on_trouble
        self._read_trouble_told = False
        self._counters = Counters()
        self._index = Index(self._scratch.free)
        self._room = Room(self._index, self._scratch, self._counters, budget_bytes)
        self._writer = Writer(self._room, queue_bytes, on_trouble, clock)
        self._reader = Reader(self._index, self._scratch, self._counters)
        self._closed = False
        self._writer.start()
        self._reader.start()

    @property
    def lock(self) -> threading.RLock:
        """Held by the planner from its first lookup until it has pinned what it plans with."""
        return self._index.lock

    @property
    def accepts(self) -> bool:
        """Whether a record submitted now could be kept: false when closed, dead or cooling down after an error."""
        self._writer.report_failure()  # a dead writer is told here: nothing is submitted to it any more
        return not self._writer.is_off

    def lookup(self, parent: bytes, ids: Ids) -> list[Match]:
        """Every stored place below `parent` that shares at least its first element with `ids`, compared by value."""
        with self._index.lock:
            return matches_below(self._index, parent, ids)

    def block(self, parent: bytes, ids: Ids) -> Match | None:
        """The stored place of exactly these elements below `parent` (a full block, or a tail), without a search."""
        with self._index.lock:
            return match_exactly(self._index, parent, ids)

    def below(self, parent: bytes) -> Mapping[bytes, Mapping[str, Entry]]:
        """All places right below a block edge: their elements, and what is stored there. Only under `lock`."""
        return self._index.children(parent)

    def contains(self, place: Place, group: str) -> bool:
        """Whether a record of the group is at the place, waiting or written."""
        with self._index.lock:
            return group in self._index.groups(place)

    def submit(
        self,
        place: Place,
        group: str,
        position: int,
        row_start: int,
        tensors: Sequence[TensorSpec],
        payload: Sequence[Buffer],
        *,
        wait: bool,
        priority: int = 0,
    ) -> Submitted:
        """Queue rows [row_start, position) of a group; the buffers must stay as they are until written.

        "present": there already (and now the last to be evicted, with its chain). With `wait` it may wait for room in
        the queue; without, waiting records of lower `priority` make room or the answer is "full". "too_large" and
        "off" say why it is not kept. ValueError if sizes and positions contradict each other.
        """
        header = RecordHeader(self.namespace, group, place, position, row_start, tuple(tensors))
        views = tuple(payload_views(header, payload))
        with self._index.lock:
            self._index.link(place)
            if self._is_present(header):
                return "present"
            answer = self._writer.admit(header.nbytes, wait, priority)
            # Waiting lets the lock go: someone else may have brought the record meanwhile.
            if answer == "queued" and self._is_present(header):
                return "present"
            if answer == "queued":
                self._replace(header)
                entry = Entry(header, views, priority)
                self._index.insert(entry)
                self._writer.put(entry)
            else:
                self._counters.dropped[answer] += 1
        self._writer.report_failure()
        return answer

    def _is_present(self, header: RecordHeader) -> bool:
        """Whether a record holds at least these rows; if so, its chain is refreshed."""
        there = self._index.groups(header.place).get(header.group)
        if there is None or there.header.row_start > header.row_start:
            return False
        self._index.touch([header.place])
        return True

    def _replace(self, header: RecordHeader) -> None:
        there = self._index.groups(header.place).get(header.group)
        if there is not None:
            self._index.remove(there)

    def pin(self, entries: Iterable[Entry]) -> None:
        """Keep the bytes of these entries; each pin is counted."""
        with self._index.lock:
            for entry in entries:
                self._index.pin(entry)

    def unpin(self, entries: Iterable[Entry]) -> None:
        """Undo one pin of each; ValueError for one that has none."""
        with self._index.lock:
            for entry in entries:
                self._index.unpin(entry)

    @contextmanager
    def pinned(self, entries: Collection[Entry]) -> Iterator[None]:
        """Pin for the length of a with-block."""
        self.pin(entries)
        try:
            yield
        finally:
            self.unpin(entries)

    def read(self, jobs: Sequence[Job]) -> list[Entry]:
        """Read every entry, verify it, and hand its tensors to its sink, on the reader thread; wait for all.

        Returns the entries that failed, which are dropped from the index. What a sink raises is raised here.
        """
        if self._closed:
            return [entry for entry, _ in jobs]
        with self.pinned([entry for entry, _ in jobs]):
            batch = self._reader.read(jobs)
            for entry, why in batch.failed:
                self._lose(entry, why)
        if batch.raised is not None:
            raise batch.raised
        return [entry for entry, _ in batch.failed]

    def _lose(self, entry: Entry, why: Exception) -> None:
        with self._index.lock:
            if entry.live:
                self._counters.dropped["bad_record" if isinstance(why, BadRecord) else "read_error"] += 1
            if isinstance(why, OSError):
                self._counters.errors += 1
            self._index.remove(entry)
            told, self._read_trouble_told = self._read_trouble_told, True
        if not told:
            self._on_trouble(f"KV cache: a checkpoint can't be used ({why}); that part is prefilled again")

    def touch(self, places: Iterable[Place]) -> None:
        """These and the chains they stand on are evicted last, of one chain the suffix before the prefix."""
        with self._index.lock:
            self._index.touch(places)

    def demote(self, places: Iterable[Place]) -> None:
        """These and what is stored after them, up to a hole, are evicted first; the suffix before the prefix."""
        with self._index.lock:
            self._index.demote(places)

    def forget(self, place: Place, group: str) -> bool:
        """Drop one record; whether it was there. Pinned bytes stay until unpinned."""
        with self._index.lock:
            entry = self._index.groups(place).get(group)
            if entry is not None:
                self._index.remove(entry)
            return entry is not None

    def shrink(self, target_bytes: int) -> int:
        """Evict until the file is at most this long, or only pinned records are left; its length in bytes then."""
        with self._index.lock:
            return self._room.shrink(target_bytes)

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that was submitted is written or dropped; False after `timeout` seconds."""
        return self._writer.drain(timeout)

    def close(self) -> None:
        """End the threads and the file: nothing is found or kept any more. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        ended = [self._writer.close(_CLOSE_TIMEOUT_S), self._reader.close(_CLOSE_TIMEOUT_S)]
        with self._index.lock:
            for entry in self._index:
                self._index.remove(entry)
            # A thread stuck in the disk keeps the descriptor: closed, its number could become another file's.
            if all(ended):
                self._scratch.close()

    def stats(self) -> StoreStats:
        """A snapshot of all counters."""
        with self._index.lock:
            return self._room.stats(self._writer.queue_bytes)

    def check(self) -> None:
        """Raise AssertionError, naming the first, if extents, free list, index, pins or queue contradict each other."""
        with self._index.lock:
            self._index.check()
            self._scratch.check()
            self._writer.check()
            in_flight = self._writer.in_flight
            self._room.check([in_flight[1]] if in_flight is not None else [])
