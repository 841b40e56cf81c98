"""Sequences of different lengths in one call, joining and leaving at any step: each as if it were alone, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.cache.together import PerSequence, RowsTogether, StatesTogether
from mlxchat.engine.batching import decodes_together
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.options import KVQuantization
from mlxchat.engine.reuse import Reuse
from mlxchat.engine.runner import CallLog, ModelRunner
from support import tiny_models
from support.side_by_side import LENGTHS, Bench, Step, differences

pytestmark = pytest.mark.exact

QUICK = ("qwen3", "gemma3_text", "gemma4_text", "gpt_oss", "qwen3_5", "qwen3_vl")
SLOW = ("gemma3n", "falcon_h1", "mamba2", "baichuan_m1", "lfm2", "qwen3_next", "recurrent_gemma", "smollm3")
KINDS = [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
ALL = frozenset(range(len(LENGTHS)))
STEADY = [Step(ALL)] * 3

bench = cache(Bench.of)


@st.composite
def schedules(draw: st.DrawFn) -> list[Step]:
    """Who is fed at each step, and who is rewound after it."""
    numbers = st.frozensets(st.sampled_from(sorted(ALL)), min_size=1)
    return [Step(draw(numbers), draw(st.frozensets(st.sampled_from(sorted(ALL)), max_size=1))) for _ in range(7)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=schedules())
def test_each_sequence_is_as_if_it_were_alone(kind: str, steps: list[Step]) -> None:
    assert set(differences(bench(kind), steps)) <= {0.0}


@pytest.mark.parametrize("kind", ["qwen3", pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_quantized_rows(kind: str) -> None:
    assert set(differences(Bench.of(kind, KVQuantization(8, 32)), STEADY)) == {0.0}


# -- planted faults ------------------------------------------------------------------------------------------------


def padded(real: Callable[..., Any]) -> Callable[..., Any]:
    """A column of padding before the shorter sequences' rows, which nobody masks."""

    def update(self: RowsTogether, keys: mx.array, values: mx.array) -> Any:
        got = real(self, keys, values)
        return tuple(PerSequence(mx.pad(rows, [(0, 0), (0, 0), (1, 0), (0, 0)]) for rows in part) for part in got)

    return update


def swapped(real: Callable[..., Any]) -> Callable[..., Any]:
    """The rows of two sequences change places."""

    def update(self: RowsTogether, keys: mx.array, values: mx.array) -> Any:
        keys, values = real(self, keys, values)
        return PerSequence((keys[1], keys[0], *keys[2:])), PerSequence((values[1], values[0], *values[2:]))

    return update


def shifted(real: Callable[..., Any]) -> Callable[..., Any]:
    """Positions are one too large."""

    def begin(self: RowsTogether, leaves: Any, offset: mx.array) -> None:
        real(self, leaves, offset + 1)

    return begin


def one_for_all(real: Callable[..., Any]) -> Callable[..., Any]:
    """All stand where the longest does, as with one position for the whole batch."""

    def begin(self: RowsTogether, leaves: Any, offset: mx.array) -> None:
        real(self, leaves, mx.broadcast_to(offset.max(), offset.shape))

    return begin


def anothers(real: Callable[..., Any]) -> Callable[..., Any]:
    """Each gets the state of its neighbour."""

    def scatter(self: StatesTogether) -> None:
        self.whole.cache = [mx.roll(array, 1, axis=0) for array in self.whole.cache]
        real(self)

    return scatter


def stale(real: Callable[..., Any]) -> Callable[..., Any]:
    """The joint states are taken for those of whoever is fed."""

    def gather(self: StatesTogether) -> None:
        if not self.whole.cache or self.whole.cache[0] is None:
            real(self)

    return gather


FAULTS: list[tuple[str, type, str, Callable[..., Any]]] = [
    ("qwen3", RowsTogether, "update_and_fetch", padded),
    ("qwen3", RowsTogether, "update_and_fetch", swapped),
    ("gemma3_text", RowsTogether, "update_and_fetch", swapped),
    ("qwen3", RowsTogether, "__init__", shifted),
    ("gpt_oss", RowsTogether, "__init__", one_for_all),
    ("qwen3_5", StatesTogether, "scatter", anothers),
]


@pytest.mark.parametrize(("kind", "where", "name", "fault"), FAULTS, ids=[f"{f[0]}-{f[3].__name__}" for f in FAULTS])
def test_planted_faults_are_seen(
    kind: str, where: type, name: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(kind)
    monkeypatch.setattr(where, name, fault(getattr(where, name)))
    assert max(differences(made, STEADY)) > 1e-3


def test_planted_a_state_that_was_set_elsewhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence that was taken back and stays in the batch must not go on from the joint arrays."""
    made = bench("qwen3_5")
    back = [Step(ALL), Step(ALL, frozenset({1})), Step(ALL)]
    assert set(differences(made, back)) == {0.0}
    made.runner.part()
    monkeypatch.setattr(StatesTogether, "gather", stale(StatesTogether.gather))
    assert max(differences(made, back)) > 1e-3


# -- which models can ----------------------------------------------------------------------------------------------


def can(kind: str) -> bool:
    model = tiny_models.build(kind)
    reuse = Reuse(FreshCaches(model), None, None, b"", off=True)
    return decodes_together(model, ModelRunner(model, CallLog(None)), reuse)


def test_a_model_that_can() -> None:
    assert can("qwen3")


@pytest.mark.parametrize("kind", ["llama4", "deepseek_v32"])
def test_models_that_take_turns(kind: str) -> None:
    """Chunks and latent attention look into the cache themselves."""
    assert not can(kind)


def test_planted_one_position_for_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library does that knows no positions per sequence."""
    monkeypatch.setattr(RowsTogether, "__init__", one_for_all(RowsTogether.__init__))
    assert not can("qwen3")
