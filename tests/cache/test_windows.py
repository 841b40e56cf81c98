"""Sliding windows of every width: the window cache against the stock ring, and restores behind a full window."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import RotatingKVCache
from mlxchat.cache import window
from mlxchat.cache.window import SLACK, WindowKVCache
from support import tiny_models
from support.faults import poison

pytestmark = pytest.mark.exact

WIDTHS = (128, 320, 512, 1024)
HEADS, WIDTH = 2, 4


def rows(start: int, count: int) -> tuple[mx.array, mx.array]:
    """Keys and values [1, HEADS, count, WIDTH] that name their position."""
    at = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    head = mx.arange(HEADS, dtype=mx.float32)[None, :, None, None] / 8
    keys = mx.broadcast_to(at + head, (1, HEADS, count, WIDTH))
    return keys, keys + 0.5


def same(a: mx.array, b: mx.array) -> bool:
    return a.shape == b.shape and bool(mx.array_equal(a, b).item())


def in_order(tensor: mx.array) -> mx.array:
    """A ring's rows by position."""
    first = np.array(tensor[0, 0, :, 0])
    return tensor[:, :, mx.array(np.argsort(first, kind="stable")), :]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(1, 70)),
        st.tuples(st.just("call"), st.just(1)),
        st.tuples(st.just("compact"), st.just(0)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(width=st.integers(2, 48), steps=STEPS)
def test_attention_gets_the_rows_that_stock_gives(width: int, steps: list[tuple[str, int]]) -> None:
    ours, stock = WindowKVCache(width), RotatingKVCache(max_size=width, keep=0)
    for step, count in steps:
        if step == "compact":
            ours.compact()
            continue
        given_mask = ours.make_mask(count, window_size=width), stock.make_mask(count, window_size=width)
        if count > 1:
            assert (given_mask[0] == given_mask[1]) if isinstance(given_mask[1], str) else same(*given_mask)
        new = rows(stock.offset, count)
        got, wanted = ours.update_and_fetch(*new), stock.update_and_fetch(*new)
        for mine, theirs in zip(got, wanted, strict=True):
            assert same(mine, theirs if count > 1 else in_order(theirs))
        assert ours.offset == stock.offset
        assert [same(a, b) for a, b in zip(ours.keys_and_values(), got, strict=True)] == [True, True]


@settings(max_examples=60, deadline=None)
@given(width=st.integers(2, 300), data=st.data())
def test_trims_calls_and_compactions_keep_the_window(width: int, data: st.DataObject) -> None:
    """After any history, every row that attention may see names its own position; trims go as far as rows allow."""
    ours = WindowKVCache(width)
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["call", "call", "decode", "trim", "compact"]))
        if step == "compact":
            ours.compact()
            assert ours.keys is None or ours._idx <= width + 2 * SLACK
        elif step == "trim":
            least = max(ours.first_row + width, 0) if ours.first_row else 0
            if ours.offset > least:
                n = data.draw(st.integers(0, ours.offset - least))
                before = ours.offset
                assert ours.trim(n) == n
                assert ours.offset == before - n
        else:
            count = 1 if step == "decode" else data.draw(st.integers(1, 300))
            seen = min(ours.offset, width - 1)
            keys, values = ours.update_and_fetch(*rows(ours.offset, count))
            wanted = rows(ours.offset - count - seen, seen + count)
            assert same(keys, wanted[0])
            assert same(values, wanted[1])
            ours.drop_view()


def test_a_fault_in_the_window_cache_turns_the_comparison_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row too few is kept over a growth: attention would miss its oldest row."""
    real = window._append
    monkeypatch.setattr(
        window, "_append", lambda held, end, kept, new, room: real(held, end, max(0, kept - 1), new, room)
    )
    ours = WindowKVCache(8)
    ours.update_and_fetch(*rows(0, 20))
    keys, _ = ours.update_and_fetch(*rows(20, 5))
    assert not same(keys, rows(13, 12)[0])


@cache
def gemma(width: int) -> Any:
    return tiny_models.build("gemma3_text", sliding_window=width, num_hidden_layers=2, sliding_window_pattern=2)


def feed(model: Any, caches: list[Any], ids: list[int], sizes: list[int]) -> list[np.ndarray]:
    """Logits of every position, [call size, vocabulary] per call."""
    out, at = [], 0
    for size in sizes:
        logits = model(mx.array(ids[at : at + size])[None], cache=caches)
        mx.eval(logits)
        out.append(np.array(logits[0]))
        for leaf in caches:
            if isinstance(leaf, WindowKVCache):
                leaf.drop_view()
                leaf.compact()
        at += size
    return out


@pytest.mark.parametrize("width", [128, 320])
def test_prefill_is_stock_bit_for_bit_and_decode_is_prefill(width: int, draw: Callable[[int], list[int]]) -> None:
    """Calls of any size give the stock ring's bits; single tokens only come near it, and equal our own prefill's."""
    model, ids = gemma(width), draw(2 * width + 114)
    sizes = [width - 3, 7, 60, width - 20, 40]
    rest = len(ids) - sum(sizes)
    stock = feed(model, model.make_cache(), ids, [*sizes, rest - 20, *[1] * 20])
    ours = feed(model, window.use_window_caches(model.make_cache()), ids, [*sizes, rest - 20, *[1] * 20])
    whole = feed(model, window.use_window_caches(model.make_cache()), ids, [*sizes, rest])
    for a, b in zip(ours[: len(sizes) + 1], stock, strict=False):
        assert np.array_equal(a, b)
    decoded, ringed = np.concatenate(ours[-20:]), np.concatenate(stock[-20:])
    assert np.allclose(decoded, ringed, atol=1e-3)
    assert np.array_equal(decoded, whole[-1][-20:])
    assert not np.array_equal(decoded, ringed)  # the ring's order is why stock can't be compared bit for bit


@pytest.mark.parametrize("width", WIDTHS)
def test_checkpoints_of_decode_past_a_full_window(width: int, draw: Any, drivers: Any) -> None:
    """The reply crosses block edges with the window full; a rewind into it restores rows that only decode made."""
    cached, uncached = drivers(gemma(width))
    prompt = draw(width + 70)
    reply = draw(300)
    cached.turn("a", prompt, reply)
    cached.drop_live("a")
    fed = prompt + reply
    for position in (len(fed) - 200, len(fed) - 3):
        again = fed[:position] + draw(30)
        stats, logits = cached.turn(f"to {position}", again, draw(3))
        _, wanted = uncached.turn("a", again, [], extra_cut=position)
        assert stats.cached_tokens == position > width
        assert stats.restore_kind == "anchor"
        assert np.array_equal(logits[0], wanted[0])
        cached.drop_live(f"to {position}")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_rewind_in_memory_behind_a_full_window(width: int, draw: Any, drivers: Any) -> None:
    cached, uncached = drivers(gemma(width))
    fed = draw(width + 200)
    cached.turn("a", fed, draw(40))
    again = fed[: width + 150] + draw(20)
    stats, logits = cached.turn("a", again, [])
    _, wanted = uncached.turn("a", again, [], extra_cut=width + 150)
    assert (stats.cached_tokens, stats.restore_kind) == (width + 150, "live")
    assert np.array_equal(logits[0], wanted[0])


# -- rows past the offset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_live", [False, True])
@pytest.mark.parametrize("kind", ["gemma3n", "gemma4_text", "gpt_oss"])
def test_rows_past_the_offset_are_never_read(
    kind: str, drop_live: bool, model: Any, draw: Any, drivers: Any, monkeypatch: Any
) -> None:
    """Layers that share another's KV would read a stale tail (kinds with fewer caches than layers, and one without)."""
    cached, uncached = drivers(model(kind))
    prompt = draw(300)
    cached.turn("a", prompt, draw(30), {295: "stable_user"}, drops=True, stable=295)
    if drop_live:
        cached.drop_live("a")
    begin, poisoned = cached.reuse.begin, []

    def beginning(*args: Any) -> Any:
        live = begin(*args)
        poisoned.append(poison(live))
        return live

    monkeypatch.setattr(cached.reuse, "begin", beginning)
    second, tail = prompt[:295] + draw(20), draw(4)
    _, logits = cached.turn("a", second, tail)
    _, wanted = uncached.turn("a", second, tail, extra_cut=295)
    assert poisoned[0] > 0
    assert np.array_equal(logits, wanted)


def test_a_poisoned_row_before_the_offset_is_noticed(model: Any, draw: Any, drivers: Any, monkeypatch: Any) -> None:
    cached, _ = drivers(model("gemma3n"))
    prompt = draw(300)
    cached.turn("a", prompt, [])
    begin = cached.reuse.begin

    def beginning(*args: Any) -> Any:
        live = begin(*args)
        poison(live, upto=1)
        return live

    monkeypatch.setattr(cached.reuse, "begin", beginning)
    _, logits = cached.turn("a", [*prompt, 7], [])
    assert np.isnan(logits).any()
