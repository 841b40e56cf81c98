"""The start-up round trip: every class passes as it is, and a library that changed is named."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_lm.models.cache as stock
import mlx_vlm.models.cache as vision
import pytest
from mlxchat.cache.round_trip import ChangedLibrary, check_round_trip
from mlxchat.cache.window import use_window_caches

pytestmark = pytest.mark.exact


def kinds(library: Any) -> dict[str, Callable[[], list[Any]]]:
    """Every class that can be restored, as the library has it, windows of several widths."""
    return {
        "KVCache": lambda: [library.KVCache()],
        "ConcatenateKVCache": lambda: [library.ConcatenateKVCache()],
        "QuantizedKVCache": lambda: [library.QuantizedKVCache(group_size=64, bits=4), library.QuantizedKVCache(32, 8)],
        "ChunkedKVCache": lambda: [library.ChunkedKVCache(192), library.ChunkedKVCache(512)],
        "RotatingKVCache": lambda: [library.RotatingKVCache(max_size=size) for size in (2, 128, 320, 512, 1024)],
        "ArraysCache": lambda: [library.ArraysCache(size=2), library.KVCache()],
        "CacheList": lambda: [
            library.CacheList(library.ArraysCache(size=1), library.CacheList(library.RotatingKVCache(300))),
            library.CacheList(library.KVCache(), library.KVCache()),
        ],
    }


LIBRARIES = {"mlx-lm": stock, "mlx-vlm": vision}
ROWS = ["KVCache", "ConcatenateKVCache", "QuantizedKVCache", "ChunkedKVCache"]


def fresh(library: str, kind: str) -> Callable[[], list[Any]]:
    return lambda: use_window_caches(kinds(LIBRARIES[library])[kind]())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", kinds(stock))
def test_every_class_as_it_is(kind: str, library: str) -> None:
    check_round_trip(fresh(library, kind))


def test_a_model_of_many_layers_starts_as_fast_as_one() -> None:
    started = time.perf_counter()
    check_round_trip(lambda: [stock.KVCache() for _ in range(400)])
    assert time.perf_counter() - started < 1.0


# -- planted faults: what a changed library might do --------------------------------------------------------------


def extra_row(real: Any) -> Any:
    return lambda self, keys, values: real(self, mx.concatenate([keys, keys[:, :, -1:]], axis=2), values)


def stale_rows(real: Any) -> Any:
    """Attention gets all of a buffer, rows past the offset too."""

    def update(self: Any, keys: Any, values: Any) -> Any:
        real(self, keys, values)
        return self.keys, self.values

    return update


def gone(real: Any) -> Any:
    def update(self: Any, keys: Any, values: Any) -> Any:
        raise AttributeError("keys")

    return update


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("change", [extra_row, gone])
def test_another_update_is_noticed(change: Any, kind: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = getattr(LIBRARIES[library], kind)
    monkeypatch.setattr(owner, "update_and_fetch", change(owner.update_and_fetch))
    with pytest.raises(ChangedLibrary, match=kind):
        check_round_trip(fresh(library, kind))


def test_rows_past_the_offset_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock.KVCache, "update_and_fetch", stale_rows(stock.KVCache.update_and_fetch))
    with pytest.raises(ChangedLibrary, match="KVCache"):
        check_round_trip(fresh("mlx-lm", "KVCache"))


@pytest.mark.parametrize("kind", ["KVCache", "QuantizedKVCache", "ChunkedKVCache"])
def test_another_trim_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getattr(stock, kind), "trim", lambda self, n: n)
    with pytest.raises(ChangedLibrary, match=kind):
        check_round_trip(fresh("mlx-lm", kind))


def test_another_place_for_states_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock.ArraysCache, "__setitem__", lambda self, at, value: setattr(self, f"state_{at}", value))
    with pytest.raises(ChangedLibrary, match="ArraysCache"):
        check_round_trip(fresh("mlx-lm", "ArraysCache"))


def test_our_own_window_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlxchat.cache.window import WindowKVCache

    monkeypatch.setattr(WindowKVCache, "trim", lambda self, n: n)
    with pytest.raises(ChangedLibrary, match="WindowKVCache"):
        check_round_trip(fresh("mlx-lm", "RotatingKVCache"))
