"""A restored run gives the logits of the uncached run, bit for bit; each kind of damage turns that red."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache import layers, planner, restore
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Piece, Plan

pytestmark = pytest.mark.exact

KINDS = ["qwen3", "llama", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss", "qwen3_5"]
ROW_INVARIANT = ["qwen3", "llama", "gemma3_text", "gpt_oss"]


def rewind(drivers: Any, model: Any, draw: Any, *, drop_live: bool) -> dict[str, Any]:
    """Turn 1 with a long reply that is dropped, turn 2 from the stable prefix on; cached and uncached."""
    cached, uncached = drivers(model)
    prompt, reply = draw(900), draw(700)
    marks = {100: "user_start", 895: "stable_user"}
    cached.turn("a", prompt, reply, marks, drops=True, stable=895)
    if drop_live:
        cached.drop_live("a")
    second = prompt[:895] + draw(300)
    marks = {**marks, 1190: "stable_user"}
    tail = draw(4)
    stats, logits = cached.turn("a", second, tail, marks, drops=True, stable=1190)
    _, wanted = uncached.turn("a", second, tail, marks, extra_cut=stats.cached_tokens)
    after = [shape for shape in uncached.shapes if shape[0] >= stats.cached_tokens]
    return {
        "stats": stats,
        "equal": np.array_equal(logits, wanted),
        "same_calls": cached.shapes == after,
    }


@pytest.mark.parametrize("drop_live", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rewind_past_a_dropped_reply(kind: str, drop_live: bool, model: Any, draw: Any, drivers: Any) -> None:
    out = rewind(drivers, model(kind), draw, drop_live=drop_live)
    assert out["stats"].cached_tokens == 895
    assert out["stats"].prefill_tokens == 300
    assert out["equal"]
    assert out["same_calls"]
    if drop_live:
        assert out["stats"].cached_disk_tokens == 895
        assert out["stats"].restore_kind == "anchor"
    elif kind in ("qwen3", "llama"):
        assert out["stats"].restore_kind == "live"
        assert out["stats"].cached_disk_tokens == 0


@pytest.mark.parametrize("kind", ROW_INVARIANT)
def test_without_a_cut_at_the_restore_position(kind: str, model: Any, draw: Any, drivers: Any) -> None:
    """Row-invariant classes on the reference BLAS: also equal to the run that has no cut at P."""
    cached, uncached = drivers(model(kind))
    prompt = draw(700)
    cached.turn("a", prompt, draw(3))
    cached.drop_live("a")
    edited = [*prompt[:600], *draw(200)]
    stats, logits = cached.turn("b", edited, [])
    _, wanted = uncached.turn("b", edited, [])
    assert stats.cached_tokens == 600
    assert np.array_equal(logits, wanted)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_block_restore(kind: str, model: Any, draw: Any, drivers: Any) -> None:
    """Only whole blocks on disk: the restore stops at the last edge."""
    cached, uncached = drivers(model(kind))
    prompt = draw(512)
    cached.turn("a", [*prompt, 7], [])
    cached.sequences["a"].live = None
    second = prompt + draw(100)
    stats, logits = cached.turn("b", second, draw(2))
    _, wanted = uncached.turn("b", second, [], extra_cut=512)
    assert (stats.cached_tokens, stats.restore_kind) == (512, "block")
    assert np.array_equal(logits[0], wanted[0])


def test_restoring_twice_leaves_the_records_as_they_were(model: Any, draw: Any, drivers: Any) -> None:
    cached, _ = drivers(model("gemma3_text"))
    prompt = draw(800)
    cached.turn("a", prompt, draw(40), drops=True, stable=795)
    cached.drop_live("a")
    second = prompt[:795] + draw(60)
    reply = draw(30)
    _, first = cached.turn("b", second, reply)
    cached.sequences.pop("b")
    _, again = cached.turn("c", second, reply)
    assert np.array_equal(first[-1], again[-1])


# -- planted faults: each damages the restore in one way that the tests above must notice -----------------------


def _off_by_one(monkeypatch: Any) -> None:
    real = layers.GlobalRows.install
    monkeypatch.setattr(
        layers.GlobalRows, "install", lambda self, c, t, position, rows: real(self, c, t, position - 1, rows)
    )
    monkeypatch.setattr(LiveCache, "check", lambda self: None)


def _blocks_swapped(monkeypatch: Any) -> None:
    real = restore.Buffers.sink

    def sink(self: Any, piece: Piece) -> Any:
        if piece.end > 512:
            return real(self, piece)
        names = {spec.name: spec.shape for spec in piece.entry.header.tensors}
        start = 256 if piece.start == 0 else 0

        def copy(tensors: dict[str, memoryview]) -> None:
            for name, view in self.views.items():
                rows = np.frombuffer(tensors[name], np.uint8).reshape(*names[name][:2], -1)
                view[:, start : start + 256] = rows

        return copy

    monkeypatch.setattr(restore.Buffers, "sink", sink)


def _row_short(monkeypatch: Any) -> None:
    real = restore.Buffers.sink
    monkeypatch.setattr(restore.Buffers, "sink", lambda self, piece: real(self, replace(piece, end=piece.end - 1)))


def _tail_short_by_one(monkeypatch: Any) -> None:
    real = restore.Buffers.sink

    def sink(self: Any, piece: Piece) -> Any:
        return real(self, replace(piece, end=piece.end - 1) if piece.end % 256 else piece)

    monkeypatch.setattr(restore.Buffers, "sink", sink)


def _window_row_missing(monkeypatch: Any) -> None:
    """The oldest row that the first call sees: no argmax notices it, the logits do."""
    real = layers.WindowRows.install

    def install(self: Any, cache: Any, tensors: list[Any], position: int, rows: int) -> None:
        oldest = rows - min(rows, self.window - 1)
        for tensor in tensors:
            layers.row_bytes(tensor)[:, oldest] = 0
        real(self, cache, tensors, position, rows)

    monkeypatch.setattr(layers.WindowRows, "install", install)


def _ring_order(monkeypatch: Any) -> None:
    real = layers.WindowRows.install

    def install(self: Any, cache: Any, tensors: list[Any], position: int, rows: int) -> None:
        turned = [mx.concatenate([t[..., 1:rows, :], t[..., :1, :], t[..., rows:, :]], axis=2) for t in tensors]
        real(self, cache, turned, position, rows)

    monkeypatch.setattr(layers.WindowRows, "install", install)


def _state_zeroed(monkeypatch: Any) -> None:
    real = restore._state_sink

    def sink(entry: Any, out: Any) -> Any:
        real(entry, out)
        return lambda tensors: None

    monkeypatch.setattr(restore, "_state_sink", sink)


def _state_of_another_position(monkeypatch: Any) -> None:
    real = planner.Planner._build

    def build(self: Any, prospect: Any, position: int, reason: Any) -> Plan:
        plan = real(self, prospect, position, reason)
        other = min(prospect.states, default=position)
        return plan if plan.state is None or other == position else replace(plan, state=prospect.states[other])

    monkeypatch.setattr(planner.Planner, "_build", build)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (_off_by_one, "qwen3"),
        (_blocks_swapped, "llama"),
        (_row_short, "qwen3"),
        (_tail_short_by_one, "qwen3"),
        (_window_row_missing, "gemma3_text"),
        (_window_row_missing, "gpt_oss"),
        (_ring_order, "gemma3_text"),
        (_state_zeroed, "qwen3_5"),
        (_state_of_another_position, "qwen3_5"),
    ],
)
def test_a_planted_fault_turns_parity_red(
    plant: Callable[[Any], None], kind: str, model: Any, draw: Any, drivers: Any, monkeypatch: Any
) -> None:
    plant(monkeypatch)
    out = rewind(drivers, model(kind), draw, drop_live=True)
    assert out["stats"].cached_tokens == 895
    assert not out["equal"]
