"""Random histories of a store on a disk that fails now and then, its books checked after every step."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mlxchat.cache.index import Entry, Index
from mlxchat.cache.keys import BLOCK, Place
from mlxchat.cache.store import Store
from mlxchat.cache.writer import LONGEST_COOL_DOWN_S
from support.kvstore import (
    NAMESPACE,
    Clock,
    FaultyFiles,
    Line,
    io_error,
    put,
    random_ids,
    read_back,
    record_bytes,
)

pytestmark = pytest.mark.plain

ONE = record_bytes()
BUDGET = 9 * ONE
QUEUE = 6 * ONE
GROUPS = ("global", "local:512", "state")
REACHES = {"local:512": 512, "state": 0}


def _lines() -> list[Line]:
    """Four sequences, three of which share a prefix."""
    ids = random_ids(5 * BLOCK)
    branches = [ids]
    for at in (2 * BLOCK + 10, 4 * BLOCK):
        other = ids.copy()
        other[at:] += 1
        branches.append(other)
    return [Line(np.asarray(branch)) for branch in (*branches, random_ids(5 * BLOCK, seed=9))]


LINES = _lines()
lines = st.sampled_from(LINES)
positions = st.sampled_from([BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 5 * BLOCK, 40, 2 * BLOCK + 5, 3 * BLOCK + 255])
groups = st.sampled_from(GROUPS)
users = st.sampled_from(("", "a", "b", "c"))
sizes = st.sampled_from([0, 1, 64, 64, 64, 300, 700])


class StoreMachine(RuleBasedStateMachine):
    """Submits, reads and pins by position; what comes back is asserted to be what belongs there."""

    def __init__(self) -> None:
        super().__init__()
        self.files, self.clock, self.said = FaultyFiles(), Clock(), []
        self.store = Store(
            self.directory,
            NAMESPACE,
            BUDGET,
            QUEUE,
            self.said.append,
            self.files,
            self.clock,
            reaches=REACHES,
            now=self.clock,
        )
        self.used: dict[tuple[Place, str], set[str]] = {}
        self.pins: list[Entry] = []
        self.disk_failed = False
        self.demoted = False

    @rule(
        line=lines,
        position=positions,
        group=groups,
        floats=sizes,
        priority=st.integers(0, 2),
        user=users,
    )
    def submit(self, line: Line, position: int, group: str, floats: int, priority: int, user: str) -> None:
        answer = put(self.store, line.place(position), position, group, floats, priority=priority, user=user)
        assert answer in {"queued", "present", "full", "off"}
        if answer in {"queued", "present"} and user:
            self.used.setdefault((line.place(position), group), set()).add(user)
        self.settle()

    @rule(line=lines, edge=st.integers(0, 4), user=users)
    def restore(self, line: Line, edge: int, user: str) -> None:
        """A conversation uses whatever is stored below an edge, and so keeps it."""
        with self.store.lock:
            matches = self.store.lookup(line.keys[edge], line.ids[edge * BLOCK : (edge + 1) * BLOCK])
            entries = [entry for match in matches for entry in match.groups.values()]
            self.store.touch([entry.header.place for entry in entries], entries, user)
            for entry in entries if user else ():
                self.used.setdefault((entry.header.place, entry.header.group), set()).add(user)

    @rule(user=users)
    def delete_conversation(self, user: str) -> None:
        """What only it used is gone, what others use is not."""
        with self.store.lock:
            before = {(entry.header.place, entry.header.group): entry for entry in self.store._index}
            self.store.leave(user)
            for key, entry in before.items():
                others = self.used.get(key, set()) - {user}
                assert entry.live == (others != set() or user not in self.used.get(key, set()))
        for some in self.used.values():
            some.discard(user)

    @rule(seconds=st.sampled_from([0.0, 1.0, LONGEST_COOL_DOWN_S / 2, 2 * LONGEST_COOL_DOWN_S]))
    def expire(self, seconds: float) -> None:
        """Exactly what is unpinned and was last needed longer ago."""
        with self.store.lock:
            before = list(self.store._index)
            self.store.expire(seconds)
            for entry in before:
                assert entry.live == (entry.pins > 0 or entry.used_at >= self.clock.now - seconds)

    @rule(step=st.sampled_from([0.5, 5.0]))
    def a_moment_passes(self, step: float) -> None:
        self.clock.now += step

    def settle(self) -> None:
        """Wait until the writer is done or held at the gate, so that a history always goes the same way."""
        until = time.monotonic() + 10
        while not (self.store.drain(0) or (self.files.held and not self.files.gate.is_set())):
            assert time.monotonic() < until
            time.sleep(0.0005)

    @rule(line=lines, n=st.integers(1, 5))
    def submit_chain(self, line: Line, n: int) -> None:
        for end in range(BLOCK, (n + 1) * BLOCK, BLOCK):
            put(self.store, line.place(end), end)
            self.settle()

    @rule(line=lines, edge=st.integers(0, 4), n=st.integers(1, BLOCK))
    def lookup(self, line: Line, edge: int, n: int) -> None:
        ids = line.ids[edge * BLOCK : edge * BLOCK + n]
        with self.store.lock:
            matches = self.store.lookup(line.keys[edge], ids)
            for match in matches:
                assert np.array_equal(match.place.elements[: match.equal], ids[: match.equal])
                if match.equal < min(match.length, n):
                    assert match.place.elements[match.equal] != ids[match.equal]
                assert set(match.groups) <= set(GROUPS)
                assert all(entry.header.place == match.place for entry in match.groups.values())
            exact = self.store.block(line.keys[edge], ids)
            whole = [match for match in matches if match.is_whole and match.length == n]
            assert ([exact] if exact else []) == whole

    @rule(line=lines, edge=st.integers(0, 4), pin=st.booleans())
    def read(self, line: Line, edge: int, pin: bool) -> None:
        with self.store.lock:
            matches = self.store.lookup(line.keys[edge], line.ids[edge * BLOCK : (edge + 1) * BLOCK])
            entries = [entry for match in matches for entry in match.groups.values()]
            if pin:
                self.store.pin(entries)
                self.pins += entries
        _, failed = read_back(self.store, entries)
        if pin and not self.disk_failed:
            assert not failed
        for entry in failed:
            assert not entry.live

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.pins))
        self.pins.remove(entry)
        self.store.unpin([entry])

    @precondition(lambda self: self.pins and not self.disk_failed)
    @rule()
    def read_pinned(self) -> None:
        assert read_back(self.store, self.pins)[1] == []

    @rule(line=lines, position=positions)
    def touch(self, line: Line, position: int) -> None:
        self.store.touch([line.place(position)])

    @rule(line=lines, position=positions)
    def demote(self, line: Line, position: int) -> None:
        self.store.demote([line.place(position)])
        self.demoted = True

    @rule(line=lines, position=positions, group=groups)
    def forget(self, line: Line, position: int, group: str) -> None:
        with self.store.lock:
            there = self.store.contains(line.place(position), group)
            assert self.store.forget(line.place(position), group) == there
            assert not self.store.contains(line.place(position), group)

    @rule(most=st.integers(0, BUDGET))
    def shrink(self, most: int) -> None:
        with self.store.lock:
            idle = self.store.stats().queue_bytes == 0
            length = self.store.shrink(most)
        if idle and not self.pins and self.files.truncate_error is None:
            assert length <= most

    @rule(closed=st.booleans())
    def hold_the_writer(self, closed: bool) -> None:
        if closed:
            self.files.gate.clear()
        else:
            self.files.gate.set()
        self.settle()

    @rule(kind=st.sampled_from(["write", "space", "read", "short", "truncate", "fine", "fine"]))
    def disk(self, kind: str) -> None:
        files = self.files
        files.write_error = io_error() if kind == "write" else None
        files.write_room = ONE + 100 if kind == "space" else None
        files.read_error = io_error(errno.ENODEV) if kind == "read" else None
        files.end_at = 2 * ONE if kind == "short" else None
        files.truncate_error = io_error() if kind == "truncate" else None
        self.disk_failed |= kind in {"read", "short"}

    @rule()
    def time_passes(self) -> None:
        self.clock.now += LONGEST_COOL_DOWN_S

    @invariant()
    def the_books_are_right(self) -> None:
        self.store.check()
        with self.store.lock:
            stats = self.store.stats()
            assert stats.file_bytes == os.fstat(self.files.descriptor).st_size <= BUDGET
            assert stats.queue_bytes <= QUEUE
            assert stats.pins == len(set(self.pins))
        assert len(self.said) <= 2
        with self.store.lock:
            there = {(entry.header.place, entry.header.group): entry.users for entry in self.store._index}
            self.used = {key: some for key, some in self.used.items() if key in there and some}
            assert self.used == {key: some for key, some in there.items() if some}
        if not self.demoted:
            self.prefixes_outlive_suffixes()

    def prefixes_outlive_suffixes(self) -> None:
        index = self.store._index
        with self.store.lock:
            seen: set[Entry] = set()
            for entry in index:
                needed = {
                    other for other in index.needed(entry.header.place) if other.header.place != entry.header.place
                }
                assert not {other for other in needed & seen if other.header.group == "global"}
                seen.add(entry)

    def teardown(self) -> None:
        self.files.gate.set()
        self.files.truncate_error = None
        self.store.unpin(self.pins)
        assert self.store.drain(10)
        self.store.check()
        self.store.close()


def run_machine(directory, examples: int) -> None:
    StoreMachine.directory = directory
    StoreMachine.TestCase.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    StoreMachine.TestCase().runTest()


def test_random_histories(tmp_path):
    run_machine(tmp_path, 40)


@pytest.mark.slow
def test_many_random_histories(tmp_path):
    run_machine(tmp_path, 600)


# -- planted faults: one history each, written out, that passes without the fault --------------------------------------


@contextmanager
def machine_in(directory: Path) -> Iterator[StoreMachine]:
    """A machine whose steps a test calls by name."""
    StoreMachine.directory = directory
    machine = StoreMachine()
    try:
        yield machine
        machine.the_books_are_right()
    finally:
        machine.files.gate.set()
        machine.store.close()


def pinned_then_crowded_out(machine: StoreMachine) -> None:
    """A pinned record is read again after the others have filled the file more than once."""
    machine.submit(LINES[3], BLOCK, "global", 64, 0, "")
    machine.read(LINES[3], 0, pin=True)
    for line in LINES[:3]:
        machine.submit_chain(line, 5)
        machine.submit(line, 5 * BLOCK, "local:512", 700, 0, "")
    machine.read_pinned()
    machine.store.unpin(machine.pins)
    machine.pins.clear()


def needed_again(machine: StoreMachine) -> None:
    """The end of a chain is needed again."""
    machine.submit_chain(LINES[0], 5)
    machine.touch(LINES[0], 5 * BLOCK)


def stored_and_forgotten(machine: StoreMachine) -> None:
    """A record's place in the file is used again after it was forgotten."""
    machine.submit_chain(LINES[0], 3)
    machine.forget(LINES[0], 2 * BLOCK, "global")
    machine.submit_chain(LINES[3], 2)


HISTORIES = (pinned_then_crowded_out, needed_again, stored_and_forgotten)


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_step_by_step(tmp_path, history):
    with machine_in(tmp_path) as machine:
        history(machine)


def test_planted_fault_an_eviction_that_ignores_pins_turns_it_red(tmp_path, monkeypatch):
    monkeypatch.setattr(Index, "pin", lambda self, entry: None)
    monkeypatch.setattr(Index, "unpin", lambda self, entry: None)
    with pytest.raises(AssertionError), machine_in(tmp_path) as machine:
        pinned_then_crowded_out(machine)


def test_planted_fault_a_touch_of_one_place_without_its_chain_turns_it_red(tmp_path, monkeypatch):
    def alone(self, places, entries=()):
        for entry in (entry for place in places for entry in self.groups(place).values()):
            self._order._entries.move_to_end(entry)

    monkeypatch.setattr(Index, "touch", alone)
    with pytest.raises(AssertionError), machine_in(tmp_path) as machine:
        needed_again(machine)


def test_planted_fault_an_extent_not_freed_whole_turns_it_red(tmp_path, monkeypatch):
    let_go = Index._let_go

    def leaky(self, entry):
        entry.extent = entry.extent and entry.extent._replace(length=max(1, entry.extent.length - 8))
        let_go(self, entry)

    monkeypatch.setattr(Index, "_let_go", leaky)
    with pytest.raises(AssertionError), machine_in(tmp_path) as machine:
        stored_and_forgotten(machine)


def shared_then_deleted(directory) -> None:
    """One conversation writes, another restores, the first is deleted; then a moment passes, and idle records go."""
    with machine_in(directory) as machine:
        machine.submit(LINES[0], BLOCK, "global", 64, 0, "a")
        machine.submit(LINES[0], 2 * BLOCK, "global", 64, 0, "a")
        machine.restore(LINES[0], 0, "b")
        machine.delete_conversation("a")
        machine.the_books_are_right()
        machine.a_moment_passes(0.5)
        machine.expire(1.0)
        assert machine.store.contains(LINES[0].place(BLOCK), "global")
        assert not machine.store.contains(LINES[0].place(2 * BLOCK), "global")


def test_what_another_conversation_restored_outlives_its_writer(tmp_path):
    shared_then_deleted(tmp_path)


def test_planted_fault_a_deletion_that_takes_what_others_use_turns_it_red(tmp_path, monkeypatch):
    def greedy(self, user):
        for entry in list(self.users.get(user, ())):
            self.remove(entry)
        return []

    monkeypatch.setattr(Index, "leave", greedy)
    with pytest.raises(AssertionError):
        shared_then_deleted(tmp_path)


def test_planted_fault_an_age_that_no_touch_renews_turns_it_red(tmp_path, monkeypatch):
    monkeypatch.setattr(Index, "idle", lambda self, seconds: [entry for entry in self if not entry.pins])
    with pytest.raises(AssertionError):
        shared_then_deleted(tmp_path)
