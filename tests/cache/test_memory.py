"""What a restore takes: asked for before it reads, given up in steps, and never more than its buffers and a margin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import psutil
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache
from mlxchat.cache import memory, restore
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.cache.files import FileSystem
from mlxchat.cache.keys import Chain, namespace_key
from mlxchat.cache.layers import Layout, pending_arrays
from mlxchat.cache.live import LiveCache
from mlxchat.cache.memory import Memory
from mlxchat.cache.planner import Plan, Planner
from mlxchat.cache.reader import Reader
from mlxchat.cache.store import Store
from support.driver import Driver
from support.peak_memory import measured

pytestmark = pytest.mark.exact

MIB = 2**20
NAMESPACE = namespace_key({"test": "memory"})


# -- a restore that doesn't fit ---------------------------------------------------------------------------------


class Free:
    """Memory that is as free as the test says, in bytes for the buffers."""

    def __init__(self) -> None:
        self.nbytes = 1 << 40
        self.asked: list[int] = []

    def __call__(self) -> int:
        self.asked.append(self.nbytes)
        return self.nbytes + memory._READING


@pytest.fixture
def tight(model: Any, tmp_path: Path) -> Iterator[Callable[[str], tuple[Driver, Driver, Free]]]:
    made = []

    def make(kind: str) -> tuple[Driver, Driver, Free]:
        free = Free()
        made.append(Driver(model(kind), tmp_path, memory=Memory(free)))
        return made[-1], Driver(model(kind), None, off=True), free

    yield make
    for driver in made:
        driver.close()
        assert driver.troubles == []


def row_bytes(driver: Driver) -> int:
    """Bytes of one row of the global layers (float32)."""
    live = driver.sequences["a"].live
    assert live is not None
    leaves = [live.leaves[index] for group in live.layout.rows if group.window is None for index, _ in group.leaves]
    return sum(leaf.nbytes // leaf.keys.shape[2] for leaf in leaves)


def again(drivers: tuple[Driver, Driver], prompt: list[int]) -> Any:
    """The prompt once more in another conversation; its stats. The logits must be those of the run from nothing."""
    cached, uncached = drivers
    stats, logits = cached.turn("b", prompt, [7])
    cut = {"extra_cut": stats.cached_tokens} if stats.cached_tokens else {}
    _, wanted = uncached.turn("b", prompt, [7], **cut)
    assert np.array_equal(logits, wanted)
    return stats


@pytest.mark.parametrize(
    ("rows", "cached", "reason"),
    [(4096, 900, "none"), (1024, 900, "none"), (800, 768, "memory"), (300, 256, "memory"), (100, 0, "memory")],
)
def test_a_restore_that_does_not_fit_becomes_shorter(
    rows: int, cached: int, reason: str, tight: Any, draw: Any
) -> None:
    """Head-room goes first, then length, then all of it."""
    driver, plain, free = tight("qwen3")
    prompt = draw(900)
    driver.turn("a", prompt, draw(3))
    each = row_bytes(driver)
    driver.drop_live("a")
    free.nbytes = rows * each
    stats = again((driver, plain), [*prompt, *draw(40)])
    assert (stats.cached_tokens, stats.shortfall_reason) == (cached, reason)
    assert stats.prefill_tokens == 940 - cached


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_5"])
def test_windows_and_states_count_too(kind: str, tight: Any, draw: Any) -> None:
    driver, plain, free = tight(kind)
    prompt = draw(700)
    driver.turn("a", prompt, draw(3), {600: "user_start"})
    each = row_bytes(driver)
    driver.drop_live("a")
    free.nbytes = 768 * each  # the global rows alone would fit
    stats = again((driver, plain), [*prompt[:600], *draw(9)])
    assert (stats.cached_tokens, stats.shortfall_reason) == (0, "memory")
    free.nbytes = 1 << 40
    driver.sequences.pop("b")
    assert again((driver, plain), [*prompt[:600], *draw(9)]).cached_tokens == 600


@pytest.mark.parametrize("where", ["buffers", "reader"])
def test_memory_that_is_gone_by_then_costs_the_restore_only(
    where: str, tight: Any, draw: Any, monkeypatch: Any
) -> None:
    driver, plain, _ = tight("qwen3")
    prompt = draw(600)
    driver.turn("a", prompt, draw(3))
    driver.drop_live("a")

    def full(*given: Any) -> Any:
        raise RuntimeError("unable to allocate") if where == "buffers" else MemoryError

    if where == "buffers":
        monkeypatch.setattr(restore, "empty_rows", full)
    else:
        monkeypatch.setattr(Reader, "_serve", full)
    stats = again((driver, plain), [*prompt, *draw(5)])
    assert (stats.cached_tokens, stats.shortfall_reason) == (0, "memory")
    driver.store.check()
    kept = {id(entry) for sequence in driver.sequences.values() for pins in sequence.pins for entry in pins}
    assert driver.store.stats().pins == len(kept)


def test_the_disk_is_told_before_the_buffers_are_cleared(tight: Any, draw: Any, monkeypatch: Any) -> None:
    driver, plain, _ = tight("qwen3")
    prompt = draw(600)
    driver.turn("a", prompt, draw(3))
    driver.drop_live("a")
    assert driver.store.drain(30)  # what still waits for the writer is not read from the disk
    told: list[int] = []
    real = restore._allocated

    def allocated(*given: Any) -> Any:
        told.append(-1)
        return real(*given)

    monkeypatch.setattr(restore, "_allocated", allocated)
    monkeypatch.setattr(FileSystem, "advise", lambda self, descriptor, offset, length: told.append(length))
    assert again((driver, plain), [*prompt, *draw(5)]).cached_tokens == 600
    assert told.index(-1) >= 3  # two whole blocks and the tail


def test_memory_is_asked_before_anything_is_read(tight: Any, draw: Any, monkeypatch: Any) -> None:
    driver, _, free = tight("qwen3")
    prompt = draw(600)
    driver.turn("a", prompt, draw(3))
    driver.drop_live("a")
    read = driver.store.read

    def reading(jobs: Any) -> Any:
        assert len(free.asked) == 1
        return read(jobs)

    monkeypatch.setattr(driver.store, "read", reading)
    stats, _ = driver.turn("b", [*prompt, 9], [])
    assert stats.cached_tokens == 600


def test_what_is_asked_for_is_what_is_allocated(tight: Any, draw: Any, monkeypatch: Any) -> None:
    driver, _, _ = tight("gemma3_text")
    prompt = draw(900)
    driver.turn("a", prompt, draw(3))
    driver.drop_live("a")
    seen: list[int] = []
    real = restore.needed_bytes
    monkeypatch.setattr("mlxchat.engine.restorer.needed_bytes", lambda *given: seen.append(real(*given)) or seen[-1])
    begin = driver.reuse.begin
    monkeypatch.setattr(driver.reuse, "begin", lambda *given: check(begin(*given)))

    def check(live: Any) -> Any:
        assert live.nbytes == seen[0]
        return live

    assert driver.turn("b", [*prompt, 9], [])[0].cached_tokens == 900


# -- defaults from the machine ----------------------------------------------------------------------------------


def machine(monkeypatch: pytest.MonkeyPatch, free: int, gpu: int | None = None) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    monkeypatch.setattr(mx, "device_info", lambda: {} if gpu is None else {"max_recommended_working_set_size": gpu})
    monkeypatch.setattr(mx, "get_active_memory", lambda: 100 * MIB)


@pytest.mark.parametrize(
    ("free", "gpu", "left", "held"),
    [
        (32 * 1024 * MIB, None, 32 * 1024 * MIB, 512 * MIB),
        (4096 * MIB, None, 4096 * MIB, 128 * MIB),
        (4096 * MIB, 1124 * MIB, 1024 * MIB, 64 * MIB),
        (0, None, 0, 64 * MIB),
    ],
)
def test_defaults_come_from_what_is_free(free: int, gpu: int | None, left: int, held: int, monkeypatch: Any) -> None:
    machine(monkeypatch, free, gpu)
    assert memory.free_bytes() == left
    assert memory.default_held_bytes() == held
    assert Memory().left() == max(0, left - memory._READING)


# -- the peak ---------------------------------------------------------------------------------------------------


def large_caches() -> list[Any]:
    return [*(KVCache() for _ in range(ROW_LAYERS)), *(ArraysCache(size=1) for _ in range(STATE_LAYERS))]


ROW_LAYERS, STATE_LAYERS = 8, 20
STATE_BYTES = 160 * MIB
ROWS = 2048


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Store, Plan, np.ndarray]]:
    """A conversation of 128 MiB in its rows and 160 MiB in one state, on disk."""
    troubles: list[str] = []
    store = Store(tmp_path, NAMESPACE, 1 << 30, 1 << 29, troubles.append)
    ids = np.arange(ROWS, dtype=np.int32)
    live = LiveCache(large_caches(), Layout.of(large_caches()), NAMESPACE)
    for leaf in live.leaves[:ROW_LAYERS]:
        leaf.update_and_fetch(mx.ones((1, 8, ROWS, 128)), mx.ones((1, 8, ROWS, 128)))
    for leaf in live.leaves[ROW_LAYERS:]:
        leaf[0] = mx.ones((STATE_BYTES // 4 // 1024 // STATE_LAYERS, 1024))
    mx.eval(pending_arrays(live.caches))
    live.append(ids)
    checkpointer = Checkpointer(store, live)
    checkpointer.blocks(0, ROWS, wait=True)
    checkpointer.state(live.state_now("end"), wait=True)
    assert store.drain(60)
    store.buffers.clear()  # not while memory is measured
    keys = Chain(NAMESPACE)
    keys.append(ids)
    plan = Planner(store, live.layout).plan(ids, keys.keys, None, ROWS, ROWS)
    del live, leaf, checkpointer
    yield store, plan, ids
    store.check()
    store.close()
    assert troubles == []


def peak_of(store: Store, plan: Plan, ids: np.ndarray) -> tuple[int, int]:
    """(bytes at the peak of the restore above its base, the most that is promised)."""
    live = LiveCache(large_caches(), Layout.of(large_caches()), NAMESPACE)
    with measured() as peak:
        worked, _ = restore.restore(plan, store, live, ids, 0)
    assert worked
    assert bool(mx.all(live.leaves[-1][0] == 1).item())
    assert bool(mx.all(live.leaves[3].values == 1).item())
    return peak.nbytes, int(1.15 * live.nbytes) + 64 * MIB


def test_a_restore_takes_its_buffers_and_little_more(stored: Any) -> None:
    peak, most = peak_of(*stored)
    assert STATE_BYTES < peak <= most


def test_a_second_copy_would_be_noticed(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what was read is kept until the end."""
    kept: list[bytes] = []
    real = restore.TensorSink.into

    def hoarding(state: Any) -> Any:
        sink = real(state)
        return lambda tensors: (kept.extend(bytes(view) for view in tensors.values()), sink(tensors))

    monkeypatch.setattr(restore.TensorSink, "into", hoarding)
    peak, most = peak_of(*stored)
    assert peak > most


def test_a_flip_in_a_large_record_is_a_miss(stored: Any) -> None:
    """Its checksum is known only after its tensors have gone into fresh buffers: nothing of them may be used."""
    store, plan, ids = stored
    assert plan.state is not None
    assert plan.state.extent is not None
    target, told = plan.state.extent.offset + plan.state.nbytes // 2, []
    files = store._scratch._files
    real = files.preadv

    def flipped(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        count, start = real(descriptor, buffers, offset), offset
        for buffer in buffers:
            if start <= target < min(start + buffer.nbytes, offset + count):
                buffer[target - start] ^= 1
            start += buffer.nbytes
        return count

    files.preadv, store._recall._on_trouble = flipped, told.append
    live = LiveCache(large_caches(), Layout.of(large_caches()), NAMESPACE)
    assert restore.restore(plan, store, live, ids, 0) == (False, 0)
    assert live.length == 0
    assert [leaf.empty() for leaf in live.leaves] == [True] * len(live.leaves)
    assert len(told) == 1
    assert store.stats().dropped["bad_record"] == 1
