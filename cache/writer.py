"""The writer thread: takes records from a queue bounded in bytes and puts them into the scratch file.

Host bytes only: nothing here knows MLX. A record is found by lookups from the moment it is queued; its extent is
published after it is written. A disk that fails costs its record, is said once, and is left alone for a while.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from .compaction import next_move
from .index import Entry
from .records import BadRecord, decode, encode, stored_checksum
from .room import Room
from .scratch import Extent

Admission = Literal["queued", "full", "too_large", "off"]
Report = Callable[[str], None]

FIRST_COOL_DOWN_S: Final = 30.0
LONGEST_COOL_DOWN_S: Final = 600.0
IDLE_S: Final = 2.0  # between two looks at the file's holes while nothing is written
PATIENCE_S: Final = 10.0  # for a disk that neither writes nor fails; after it nobody waits until it has written again


class Writer:
    """The queue, its thread, and the state of the disk. `changed` is notified when the queue gains room.

    `on_trouble` is called from this thread or the submitting one, `on_idle` from this one, without the lock.
    """

    def __init__(
        self,
        room: Room,
        queue_limit: int,
        on_trouble: Report,
        clock: Callable[[], float] = time.monotonic,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.queue_limit = queue_limit
        self.queue_bytes = 0
        self.in_flight: tuple[Entry, Extent] | None = None
        self.failure: BaseException | None = None
        self.changed = threading.Condition(room.index.lock)
        self._room = room
        self._queue: deque[Entry] = deque()
        self._current: Entry | None = None
        self._on_trouble = on_trouble
        self._clock = clock
        self._on_idle = on_idle
        self._told: set[str] = set()
        self._closing = False
        self._handled = 0
        self._stalled = False
        self._cool_down = FIRST_COOL_DOWN_S
        self._resume_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="mlxchat-kv-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_off(self) -> bool:
        """Whether nothing can be written now: closed, dead, or the disk is cooling down."""
        return self._closing or self.failure is not None or not self._thread.is_alive() or self._is_cooling()

    def _is_cooling(self) -> bool:
        return self._resume_at is not None and self._clock() < self._resume_at

    def admit(self, nbytes: int, wait: bool, priority: int) -> Admission:
        """Whether a record may be queued now; the caller holds the lock and then calls `put`.

        With `wait` it waits for room, letting the lock go meanwhile, unless the disk seems to hang; without, waiting
        records of lower priority make room, or the answer is "full".
        """
        if nbytes > min(self.queue_limit, self._room.budget):
            return "too_large"
        while not self.is_off:
            if self.queue_bytes + nbytes <= self.queue_limit:
                return "queued"
            if wait and not self._stalled:
                self._wait_for_progress()
            elif not self._displace(nbytes, priority):
                return "full"
        return "off"

    def _wait_for_progress(self) -> None:
        handled = self._handled
        moved = self.changed.wait_for(lambda: self._handled != handled or self.is_off, PATIENCE_S)
        self._stalled = not moved

    def _displace(self, nbytes: int, priority: int) -> bool:
        """Drop waiting records of lower priority, the lowest and oldest first, if that makes enough room."""
        lower = [e for e in self._queue if e.priority < priority and not e.pins and e is not self._current]
        need = self.queue_bytes + nbytes - self.queue_limit
        if sum(entry.nbytes for entry in lower) < need:
            return False
        for entry in sorted(lower, key=lambda entry: entry.priority):
            if need <= 0:
                break
            self._queue.remove(entry)
            self.queue_bytes -= entry.nbytes
            need -= entry.nbytes
            self._drop(entry, "displaced")
        return True

    def put(self, entry: Entry) -> None:
        """Queue an entry that was admitted; the caller holds the lock."""
        self._queue.append(entry)
        self.queue_bytes += entry.nbytes
        self.changed.notify_all()

    def report_failure(self) -> None:
        """Say once that the thread has died. Called without the lock."""
        if self.failure is not None:
            self.say("died", f"KV cache: the writer stopped ({self.failure!r}); chatting on without checkpoints")

    def say(self, kind: str, message: str) -> None:
        """One line for the user, once for each kind. Called without the lock."""
        if kind not in self._told:
            self._told.add(kind)
            self._on_trouble(message)

    def _run(self) -> None:
        try:
            patience = IDLE_S
            while not self._closing:
                entry = self._next(patience)
                if entry is not None:
                    self._store(entry)
                elif patience:
                    self._on_idle()
                patience = 0.0 if entry is not None or self._move_one() else IDLE_S
        except BaseException as error:
            self._die(error)

    def _next(self, patience: float) -> Entry | None:
        """Wait for the next record; None when closing, or if none has come in `patience` seconds."""
        with self.changed:
            if not self._queue and not self._closing:
                self.changed.wait(patience)
            self._current = self._queue.popleft() if self._queue and not self._closing else None
            return self._current

    def _store(self, entry: Entry) -> None:
        message = ""
        try:
            self._write(entry)
        except OSError as error:
            message = self._fail(entry, error)
        with self.changed:
            self._current = None
            self.queue_bytes -= entry.nbytes
            self._handled, self._stalled = self._handled + 1, False
            self.changed.notify_all()
        if message:
            self.say("write", message)

    def _move_one(self) -> bool:
        """While nothing waits: write a record again where it closes a hole. Whether one was moved.

        It is read first, then waits in memory like a new one, so whoever wants it meanwhile finds it there.
        """
        with self.changed:
            entry = None if self._queue or self.is_off else next_move(self._room)
            if entry is None or entry.nbytes > self.queue_limit or entry.extent is None:
                return False
            extent = entry.extent
            self._room.index.pin(entry)
        payload = self._read_back(entry, extent)
        with self.changed:
            free = entry.pins == 1 and entry.live and not self.is_off
            free = free and self.queue_bytes + entry.nbytes <= self.queue_limit
            if free and payload is not None:
                entry.payload, entry.extent, self._current = payload, None, entry
                self.queue_bytes += entry.nbytes
                self._room.scratch.erase(extent)
                self._room.scratch.free(extent)
            self._room.index.unpin(entry)
        if self._current is None:
            return False
        self._store(entry)
        return True

    def _read_back(self, entry: Entry, extent: Extent) -> tuple[memoryview, ...] | None:
        """The tensors of a stored record; None if they can't be had, in which case the record is let go."""
        held = bytearray(extent.length)
        try:
            self._room.scratch.read_into(extent.offset, memoryview(held))
            header, tensors = decode(memoryview(held))
            if header == entry.header and stored_checksum(held) == entry.checksum:
                return tuple(tensors.values())
            reason = "bad_record"
        except (OSError, BadRecord) as error:
            reason = "bad_record" if isinstance(error, BadRecord) else "read_error"
        with self.changed:
            self._drop(entry, reason)
        return None

    def _write(self, entry: Entry) -> None:
        room = self._room
        with self.changed:
            payload = entry.payload
            if not entry.live or payload is None:
                return
            if self._is_cooling():
                self._drop(entry, "cooling")
                return
            extent = room.make(entry)
            if extent is None:
                self._drop(entry, "no_room")
                return
            self.in_flight = (entry, extent)
        parts = encode(entry.header, payload)
        room.scratch.write(extent, parts)
        with self.changed:
            self.in_flight = None
            room.index.publish(entry, extent, stored_checksum(parts[0]))
            room.counters.writes += 1
            room.counters.bytes_written += entry.nbytes
            self._cool_down, self._resume_at = FIRST_COOL_DOWN_S, None

    def _fail(self, entry: Entry, error: OSError) -> str:
        """Take back what the failed write had, start a cool-down; what to tell the user."""
        with self.changed:
            self._abandon()
            self._drop(entry, "write_error")
            self._room.counters.errors += 1
            self._resume_at = self._clock() + self._cool_down
            self._cool_down = min(2 * self._cool_down, LONGEST_COOL_DOWN_S)
        return f"KV cache: can't write ({error.strerror or error}); chatting on without new checkpoints for a while"

    def _abandon(self) -> None:
        if self.in_flight is not None:
            _, extent = self.in_flight
            self.in_flight = None
            self._room.scratch.free(extent)

    def _drop(self, entry: Entry, reason: str) -> None:
        if entry.live:
            self._room.counters.dropped[reason] += 1
        self._room.index.remove(entry)

    def _die(self, error: BaseException) -> None:
        """Nothing will be written any more: let go of all that waits, and wake whoever waits for room."""
        with self.changed:
            self.failure = error
            self._room.counters.errors += 1
            self._discard("off")

    def _discard(self, reason: str) -> None:
        self._abandon()
        for entry in (self._current, *self._queue):
            if entry is not None:
                self._drop(entry, reason)
        self._queue.clear()
        self._current = None
        self.queue_bytes = 0
        self.changed.notify_all()

    def disown(self) -> None:
        """In a forked process, which has no such thread: nothing is taken any more."""
        self._closing = True
        self._discard("off")

    def drain(self, timeout: float | None) -> bool:
        """Wait until the queue is empty; False after `timeout` seconds, or if the thread has died."""
        with self.changed:
            self.changed.wait_for(lambda: not self.queue_bytes or self.failure is not None, timeout)
            return not self.queue_bytes and self.failure is None

    def close(self, timeout: float) -> bool:
        """Finish the write in hand, drop the rest; whether the thread has ended within `timeout` seconds."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        with self.changed:
            self._discard("off")
        return True

    def check(self) -> None:
        """Raise AssertionError if the queue's bytes don't add up. The caller holds the lock."""
        held = sum(entry.nbytes for entry in (self._current, *self._queue) if entry is not None)
        assert held == self.queue_bytes, f"writer: {held} bytes wait, {self.queue_bytes} counted"
        assert held <= self.queue_limit, f"writer: {held} bytes wait, {self.queue_limit} allowed"
        waiting = {entry for entry in (self._current, *self._queue) if entry is not None}
        pending = {entry for entry in self._room.index if entry.payload is not None}
        assert pending <= waiting, "writer: a record that is neither stored nor waiting"
