"""After churn with records of mixed sizes the file is at most 1.1 times what lives in it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.cache import compaction, writer
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from support.kvstore import MIB, NAMESPACE, FaultyFiles, Line, put, random_ids, read_back

pytestmark = pytest.mark.exact

BUDGET = 48 * MIB
# floats of two tensors each: 8 bytes a float; a block of global layers, one of local ones, a recurrent state
SIZES = {"global": 3_000, "local": 30_000, "state": 300_000}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(writer, "IDLE_S", 0.02)
    told: list[str] = []
    made = Store(tmp_path, NAMESPACE, BUDGET, 32 * MIB, told.append, files=FaultyFiles())
    yield made
    made.check()
    made.close()
    assert told == []


def churn(store: Store, rounds: int, deleted: float) -> None:
    """Conversations of 1 to 8 blocks, with states now and then, and some of what is there forgotten."""
    rng = random.Random(7)
    for round_ in range(rounds):
        line = Line(random_ids(rng.randint(1, 8) * BLOCK, seed=round_))
        for n, place in enumerate(line.blocks(), 1):
            for group, floats in SIZES.items():
                if group != "state" or rng.random() < 0.2:
                    put(store, place, n * BLOCK, group, floats, wait=True)
        if rng.random() < deleted:
            assert store.drain(30)
            with store.lock:
                known = list(store._index)
            for entry in rng.sample(known, len(known) // 3):
                store.forget(entry.header.place, entry.header.group)
    assert store.drain(30)


def settle(store: Store) -> float:
    """Wait until nothing moves any more; the file's length over what lives in it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with store.lock:
            if not store._writer.queue_bytes and compaction.next_move(store._room) is None:
                break
        time.sleep(0.02)
    stats = store.stats()
    return stats.file_bytes / stats.record_bytes


@pytest.mark.parametrize("deleted", [0.0, 0.4])
def test_the_file_is_little_longer_than_what_lives_in_it(store: Store, deleted: float) -> None:
    churn(store, 60, deleted)
    assert settle(store) <= 1.1
    assert store.stats().record_bytes > 12 * MIB
    with store.lock:
        entries = list(store._index)
    came, failed = read_back(store, entries)
    assert (len(came), failed) == (len(entries), [])


def test_without_moves_it_is_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault."""
    monkeypatch.setattr(writer, "next_move", lambda room: None)
    churn(store, 60, 0.4)
    stats = store.stats()
    assert stats.file_bytes / stats.record_bytes > 1.1


def test_pinned_records_stay_where_they_are(store: Store) -> None:
    churn(store, 20, 0.0)
    with store.lock:
        kept = [entry for entry in store._index if entry.extent is not None][::5]
        store.pin(kept)
        held = [entry.extent for entry in kept]
    churn(store, 20, 0.5)
    settle(store)
    assert [entry.extent for entry in kept] == held
    store.unpin(kept)


def test_a_record_that_moves_is_found_all_the_time(store: Store) -> None:
    files = store._scratch._files
    assert isinstance(files, FaultyFiles)
    line = Line(random_ids(8 * BLOCK, seed=99))
    for n, place in enumerate(line.blocks(), 1):
        put(store, place, n * BLOCK, "local", SIZES["state"] // 2, wait=True)
    assert store.drain(30)
    files.gate.clear()  # whatever moves now hangs while it is written
    with store.lock:
        entries = list(store._index)
        for entry in entries[::2]:
            store.forget(entry.header.place, entry.header.group)
    deadline = time.monotonic() + 10
    while not files.held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert files.held, "nothing moved"
    came, failed = read_back(store, entries[1::2])
    files.gate.set()
    assert (len(came), failed) == (4, [])
    assert settle(store) <= 1.1 or store.stats().free_bytes <= compaction.LEAST_HOLES


def test_a_record_that_can_not_be_read_is_let_go(store: Store) -> None:
    files = store._scratch._files
    assert isinstance(files, FaultyFiles)
    churn(store, 20, 0.0)
    with store.lock:
        before = len(store._index)
        entry = max((e for e in store._index if e.extent is not None), key=lambda e: e.extent.offset)
        files.bad_from = entry.extent.offset
        for other in [e for e in store._index if e is not entry][::2]:
            store.forget(other.header.place, other.header.group)
        left = len(store._index)
    assert left < before
    deadline = time.monotonic() + 10
    while entry.live and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not entry.live
    files.bad_from = None
    assert store.stats().dropped["read_error"] >= 1
