"""Every cache class that can be restored: what is stored, what comes back, and a trim in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.cache.keys import namespace_key
from mlxchat.cache.layers import Layout, flatten, pending_arrays
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Planner
from mlxchat.cache.restore import restore
from mlxchat.cache.row_readers import UnsupportedCache
from mlxchat.cache.store import Store
from mlxchat.cache.window import use_window_caches

pytestmark = pytest.mark.exact

NAMESPACE = namespace_key({"test": "layers"})
IDS = np.arange(7, 7 + 900, dtype=np.int32)

MAKERS: dict[str, Callable[[], list[Any]]] = {
    "KVCache": lambda: [KVCache(), KVCache()],
    "ConcatenateKVCache": lambda: [ConcatenateKVCache()],
    "QuantizedKVCache 8": lambda: [QuantizedKVCache(group_size=32, bits=8)],
    "QuantizedKVCache 4": lambda: [QuantizedKVCache(group_size=32, bits=4), KVCache()],
    "ChunkedKVCache": lambda: [ChunkedKVCache(320), KVCache()],
    "RotatingKVCache": lambda: [RotatingKVCache(max_size=300), KVCache()],
    "CacheList": lambda: [CacheList(RotatingKVCache(max_size=512), KVCache()), KVCache()],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    troubles: list[str] = []
    made = Store(tmp_path, NAMESPACE, 1 << 28, 1 << 26, troubles.append)
    yield made
    made.check()
    made.close()
    assert troubles == []


def rows(seed: int, start: int, end: int, width: int) -> mx.array:
    rng = np.random.default_rng(seed)
    everything = rng.standard_normal((1, 2, len(IDS), width)).astype(np.float32)
    return mx.array(everything[:, :, start:end])


def fresh(maker: Callable[[], list[Any]]) -> LiveCache:
    caches = use_window_caches(maker())
    return LiveCache(caches, Layout.of(caches), NAMESPACE)


def feed(live: LiveCache, end: int, checkpointer: Checkpointer | None, value_width: int = 64) -> list[Any]:
    """One call: rows [length, end) of every leaf; what attention got."""
    start, seen = live.length, []
    for number, leaf in enumerate(live.leaves):
        if hasattr(leaf, "maybe_trim_front"):
            leaf.maybe_trim_front()
        seen.append(leaf.update_and_fetch(rows(number, start, end, 32), rows(number + 50, start, end, value_width)))
    mx.eval(seen, pending_arrays(live.caches))
    live.append(IDS[start:end])
    if checkpointer is not None:
        checkpointer.blocks(start, end, wait=True)
        checkpointer.tail(end, wait=True)
    live.drop_views()
    live.compact()
    return [[np.array(part) for part in _parts(got)] for got in seen]


def _parts(got: Any) -> list[mx.array]:
    return [got] if isinstance(got, mx.array) else [leaf for part in got for leaf in _parts(part)]


def same(a: list[Any], b: list[Any]) -> bool:
    return all(np.array_equal(x, y) for one, two in zip(a, b, strict=True) for x, y in zip(one, two, strict=True))


def restored(store: Store, maker: Callable[[], list[Any]], position: int) -> LiveCache:
    live = fresh(maker)
    keys = live.chain.__class__(NAMESPACE)
    keys.append(IDS[:position])
    plan = Planner(store, live.layout).plan(IDS[:position], keys.keys, None, position, position)
    assert plan.position == position
    worked, _ = restore(plan, store, live, IDS[:position], 64)
    assert worked
    return live


@pytest.mark.parametrize("position", [512, 600, 701, 889])
@pytest.mark.parametrize("kind", MAKERS)
def test_restored_rows_are_what_attention_would_see(kind: str, position: int, store: Store) -> None:
    maker = MAKERS[kind]
    written = fresh(maker)
    checkpointer = Checkpointer(store, written)
    for end in (300, 889):
        feed(written, end, checkpointer)
    plain = fresh(maker)
    feed(plain, 300, None)
    feed(plain, position, None)
    assert same(feed(restored(store, maker, position), 895, None), feed(plain, 895, None))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_trim_in_memory_leaves_nothing_behind(kind: str) -> None:
    maker = MAKERS[kind]
    plain, trimmed = fresh(maker), fresh(maker)
    for live in (plain, trimmed):
        feed(live, 300, None)
    feed(trimmed, 340, None)
    trimmed.trim(300)
    trimmed.check()
    assert same(feed(trimmed, 420, None), feed(plain, 420, None))


def test_a_value_width_of_zero(store: Store) -> None:
    written = fresh(MAKERS["KVCache"])
    feed(written, 600, Checkpointer(store, written), value_width=0)
    assert restored(store, MAKERS["KVCache"], 600).leaves[0].values.shape[3] == 0


def test_records_hold_rows_not_buffers(store: Store) -> None:
    """The padded buffer is never stored: bytes are rows times row bytes."""
    written = fresh(MAKERS["KVCache"])
    checkpointer = Checkpointer(store, written)
    feed(written, 300, checkpointer)
    assert checkpointer.bytes_written == 300 * 2 * (2 * (32 + 64) * 4)


def test_a_zeroed_row_is_noticed(store: Store) -> None:
    """The planted fault of the equality above: one row of one head lost."""
    written = fresh(MAKERS["KVCache"])
    feed(written, 600, Checkpointer(store, written))
    live, plain = restored(store, MAKERS["KVCache"], 600), fresh(MAKERS["KVCache"])
    feed(plain, 600, None)
    live.leaves[0].keys[:, 0, 7] = 0
    assert not same(feed(live, 610, None), feed(plain, 610, None))


@pytest.mark.parametrize("cache", [RotatingKVCache(max_size=64, keep=4), object()])
def test_other_classes_are_named(cache: Any) -> None:
    with pytest.raises(UnsupportedCache, match=type(cache).__name__):
        Layout.of(use_window_caches([KVCache(), cache]))


def test_lists_are_opened_in_order() -> None:
    inner = [KVCache(), ArraysCache(size=2)]
    assert flatten([KVCache(), CacheList(*inner)])[1:] == inner
