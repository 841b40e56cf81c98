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
from typing import Final

from . import forks
from .buffers import BufferPool
from .counters import Counters, StoreStats
from .files import FileSystem
from .index import Entry, Index
from .intake import Intake
from .intake import Submitted as Submitted
from .keeping import Keeping
from .kept import KeptFile
from .keys import Ids, Place
from .lookup import Match as Match
from .lookup import match_exactly, matches_below
from .reader import Job, Reader
from .recall import Recall
from .records import Buffer, RecordHeader, TensorSpec
from .room import Room
from .scratch import ScratchFile
from .writer import Report, Writer

_CLOSE_TIMEOUT_S: Final = 10.0


class Store:
    """Records of one namespace, in a scratch file in `directory` that is at most `budget_bytes` long.

    `on_trouble` gets one line, once for each kind of trouble, from any thread. CacheTrouble if the directory can't be
    used.

    kept      the file to use instead, which outlives the program; this store closes it
    reaches   for each group of layers that doesn't need every block before a position: how many positions it needs
    now       seconds since 1970, by which idle records are known

    `buffers` are for those who submit: what is submitted stays as it is until written, then comes back there.
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
        *,
        kept: KeptFile | None = None,
        reaches: Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._scratch = kept.scratch() if kept is not None else ScratchFile.nameless(directory, files)
        self.namespace = namespace
        self._counters = Counters(damaged=kept.damaged if kept is not None else 0)
        self._index = Index(self._scratch.free, reaches, now, self._scratch.erase)
        self._room = Room(self._index, self._scratch, self._counters, budget_bytes)
        self.buffers = BufferPool(queue_bytes // 2)
        self._writer = Writer(self._room, queue_bytes, on_trouble, clock, self.buffers.clear)
        self._intake = Intake(self._index, self._writer, self._counters)
        self._reader = Reader(self._index, self._scratch, self._counters)
        self._recall = Recall(self._reader, self._index, self._counters, on_trouble)
        self._keeping = Keeping(kept, self._room) if kept is not None else None
        self._closed = False
        if self._keeping is not None:
            self._keeping.adopt()
        forks.own(self)
        self._writer.start()
        self._reader.start()

    @property
    def lock(self) -> threading.RLock:
        """Held by the planner from its first lookup until it has pinned what it plans with."""
        return self._index.lock

    @property
    def is_kept(self) -> bool:
        """Whether the records outlive the program."""
        return self._keeping is not None

    @property
    def accepts(self) -> bool:
        """Whether a record submitted now could be kept: false when closed, dead or cooling down after an error."""
        self._writer.report_failure()  # a dead writer is told here: nothing is submitted to it any more
        return not self._writer.is_off

    def say(self, kind: str, message: str) -> None:
        """Tell the user one line, once for each kind of trouble."""
        self._writer.say(kind, message)

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

    def contains(self, place: Place, group: str, user: str = "") -> bool:
        """Whether a record of the group is at the place, waiting or written. If so, the conversation uses it."""
        with self._index.lock:
            entry = self._index.groups(place).get(group)
            self._index.use(user, [entry] if entry is not None else [])
            return entry is not None

    def rows_held(self, place: Place, group: str, rows: tuple[int, int], user: str = "") -> int:
        """How far records hold `rows` [start, end) of a group, the last of which leads to the place.

        The conversation uses what holds them. If rows are missing, what is about to stand on the others is no good
        without them: they are the last to be evicted.
        """
        with self._index.lock:
            held, used = self._index.holders(place, group, rows, user)
            self._index.use(user, used)
            if used and held < rows[1]:
                self._index.touch([place], used)
            return held

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
        user: str = "",
    ) -> Submitted:
        """Queue rows [row_start, position) of a group; the buffers must stay as they are until written.

        "present": there already (and now the last to be evicted, with its chain). With `wait` it may wait for room in
        the queue; without, waiting records of lower `priority` make room or the answer is "full". "too_large" and
        "off" say why it is not kept. `user` is the conversation that uses it from now on. ValueError if sizes and
        positions contradict each other.
        """
        header = RecordHeader(self.namespace, group, place, position, row_start, tuple(tensors), user)
        return self._intake.submit(header, payload, wait=wait, priority=priority)

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
            return self._recall.read(jobs)

    def expect(self, entries: Iterable[Entry]) -> None:
        """Have the disk begin to bring these while the caller makes room for them. Never fails."""
        if not self._closed:
            self._reader.expect(entries)

    def while_reading(self, meanwhile: Callable[[], bool]) -> None:
        """What whoever waits in `read` does until its records have come; it says whether there was anything to do."""
        self._reader.meanwhile = meanwhile

    def touch(self, places: Iterable[Place], entries: Iterable[Entry] = (), user: str = "") -> None:
        """What these places need, and these entries, is evicted last, of one chain the suffix before the prefix.

        `user` is the conversation that uses the entries.
        """
        with self._index.lock:
            entries = list(entries)
            self._index.use(user, entries)
            self._index.touch(places, entries)

    def use(self, user: str, entries: Iterable[Entry]) -> None:
        """The conversation uses these: they are not deleted with others."""
        with self._index.lock:
            self._index.use(user, entries)

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

    def leave(self, user: str) -> int:
        """The conversation is deleted: delete what only it used; how many records that was."""
        with self._index.lock:
            return len(self._index.leave(user))

    def expire(self, seconds: float) -> int:
        """Delete what nobody has needed for so long, but for what is pinned; how many records that was."""
        with self._index.lock:
            idle = self._index.idle(seconds)
            for entry in idle:
                self._index.remove(entry)
            self._counters.expired += len(idle)
            return len(idle)

    def keep_notes(self) -> None:
        """Where the records are kept: forget what was deleted elsewhere meanwhile, note who uses what."""
        if self._keeping is not None and not self._closed:
            with self._index.lock:
                self._keeping.note()

    def shrink(self, target_bytes: int) -> int:
        """Evict until the file is at most this long, or only pinned records are left; its length in bytes then."""
        with self._index.lock:
            return self._room.shrink(target_bytes)

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that was submitted is written or dropped; False after `timeout` seconds."""
        return self._writer.drain(timeout)

    def close(self) -> None:
        """End the threads and close the file: nothing is found any more, nor kept without a file for it.

        Safe to call twice.
        """
        if self._closed:
            return
        self._closed = True
        ended = [self._writer.close(_CLOSE_TIMEOUT_S), self._reader.close(_CLOSE_TIMEOUT_S)]
        with self._index.lock:
            if self._keeping is not None:
                self._keeping.end()
            for entry in self._index:
                self._index.remove(entry)
            # A thread stuck in the disk keeps the descriptor: closed, its number could become another file's.
            if all(ended):
                self._scratch.close()

    def disown(self) -> None:
        """In a process forked from this one: hold nothing, write nothing, and leave the file to the parent."""
        self._index.lock._at_fork_reinit()  # type: ignore[attr-defined]  # whoever held it is not here
        with self._index.lock:
            self._closed = True
            self._scratch.close()  # before anything frees an extent in what is the parent's file
            self._writer.disown()
            for entry in self._index:
                self._index.remove(entry)

    def stats(self) -> StoreStats:
        """A snapshot of all counters."""
        with self._index.lock:
            writer = self._writer
            return self._room.stats(writer.queue_bytes, writer.queue_limit, cooling=writer.is_off, is_kept=self.is_kept)

    def check(self) -> None:
        """Raise AssertionError, naming the first, if extents, free list, index, pins or queue contradict each other."""
        with self._index.lock:
            self._index.check()
            self._scratch.check()
            self._writer.check()
            in_flight = self._writer.in_flight
            self._room.check([in_flight[1]] if in_flight is not None else [])
