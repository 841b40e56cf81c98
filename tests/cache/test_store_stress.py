"""Prefill, decode, planning and reading against one another for a while, on a file that is always full."""

from __future__ import annotations

import random
import threading
import time

import pytest
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from support.kvstore import NAMESPACE, FaultyFiles, Line, put, random_ids, read_back, record_bytes

pytestmark = [pytest.mark.exact, pytest.mark.slow]

SECONDS = 20.0


def test_nothing_breaks_under_load(tmp_path):
    one = record_bytes(2000)
    store = Store(tmp_path, NAMESPACE, 60 * one, 8 * one, print, FaultyFiles())
    lines = [Line(random_ids(30 * BLOCK, seed=seed)) for seed in range(8)]
    until = time.monotonic() + SECONDS
    broken: list[BaseException] = []
    counts = {"submit": 0, "read": 0, "miss": 0}

    def guarded(work) -> threading.Thread:
        def run() -> None:
            rng = random.Random(work.__name__)
            try:
                while time.monotonic() < until and not broken:
                    work(rng)
            except BaseException as error:
                broken.append(error)

        return threading.Thread(target=run)

    def submit(rng: random.Random) -> None:
        line, n = rng.choice(lines), rng.randint(1, 30)
        for end in range(BLOCK, n * BLOCK + 1, BLOCK):
            put(store, line.place(end), end, floats=2000, wait=rng.random() < 0.5, priority=rng.randint(0, 1))
            counts["submit"] += 1

    def restore(rng: random.Random) -> None:
        line = rng.choice(lines)
        entries = []
        with store.lock:
            for n in range(30):
                match = store.block(line.keys[n], line.ids[n * BLOCK : (n + 1) * BLOCK])
                if match is None:
                    break
                entries.append(match.groups["global"])
            store.pin(entries)
            store.touch([entry.header.place for entry in entries])
        came, failed = read_back(store, entries)
        store.unpin(entries)
        assert not failed
        counts["read"] += len(came)
        counts["miss"] += not entries

    def audit(rng: random.Random) -> None:
        store.check()
        if rng.random() < 0.1:
            store.forget(rng.choice(lines).place(rng.randint(1, 30) * BLOCK), "global")
        if rng.random() < 0.01:
            store.shrink(rng.randint(0, 60) * one)
        time.sleep(0.01)

    threads = [guarded(work) for work in (submit, submit, restore, restore, audit)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 30)
    assert not broken
    assert store.drain(30)
    store.check()
    stats = store.stats()
    assert stats.evictions > 100
    assert counts["read"] > 1000
    assert stats.pins == 0
    store.close()
