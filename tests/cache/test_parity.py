"""A restored run gives the logits of the uncached run, bit for bit; each kind of damage turns that red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import faults

pytestmark = pytest.mark.exact

KINDS = ["qwen3", "llama", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss", "qwen3_5"]
ROW_INVARIANT = KINDS[:-1]


def rewind(drivers: Any, model: Any, draw: Any, *, drop_live: bool, said: int = 12) -> dict[str, Any]:
    """Turn 1 with a reply that is dropped, turn 2 from the stable prefix on; cached and uncached."""
    cached, uncached = drivers(model)
    prompt, reply = draw(900), draw(said)
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


@pytest.mark.parametrize("drop_live", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", KINDS)
def test_rewind_past_a_dropped_reply(kind: str, drop_live: bool, model: Any, draw: Any, drivers: Any) -> None:
    # In memory a window must have moved past what the stable prefix needs; the store doesn't care.
    said = 12 if drop_live else 270
    out = rewind(drivers, model(kind), draw, drop_live=drop_live, said=said)
    assert out["stats"].cached_tokens == 895
    assert out["stats"].prefill_tokens == 300
    assert out["equal"]
    assert out["same_calls"]
    if drop_live:
        assert out["stats"].cached_disk_tokens == 895
        assert out["stats"].restore_kind == "anchor"
    elif kind in ("qwen3", "llama", "qwen3_5"):
        assert out["stats"].restore_kind == "live"
        assert out["stats"].cached_disk_tokens == 0
    else:
        assert out["stats"].restore_kind == "anchor"
        assert out["stats"].cached_live_tokens > 0


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


# -- each planted fault must be noticed by what the tests above compare ----------------------------------------


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (faults.off_by_one, "qwen3"),
        (faults.blocks_swapped, "llama"),
        (faults.row_short, "qwen3"),
        (faults.tail_short_by_one, "qwen3"),
        (faults.window_row_missing, "gemma3_text"),
        (faults.window_row_missing, "gpt_oss"),
        (faults.ring_order, "gemma3_text"),
        (faults.state_zeroed, "qwen3_5"),
        (faults.state_of_another_position, "qwen3_5"),
    ],
)
def test_a_planted_fault_turns_parity_red(
    plant: Callable[[Any], None], kind: str, model: Any, draw: Any, drivers: Any, monkeypatch: Any
) -> None:
    plant(monkeypatch)
    out = rewind(drivers, model(kind), draw, drop_live=True)
    assert out["stats"].cached_tokens == 895
    assert not out["equal"]
