"""Samplers and processors from the user's options and the model's defaults."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlxchat.engine.options import SamplingOptions
from mlxchat.engine.request import Draw
from mlxchat.engine.sampling import ThinkFloor, build, model_defaults, resolve
from mlxchat.errors import UsageError

pytestmark = pytest.mark.exact

SAMPLED = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 20}


@pytest.mark.parametrize(
    ("options", "defaults", "wanted"),
    [
        ({}, {}, (0.0, 0.0, 0, 0.0)),
        ({}, SAMPLED, (0.7, 0.9, 20, 0.0)),
        ({}, {**SAMPLED, "do_sample": False}, (0.0, 0.0, 0, 0.0)),
        ({}, {"temperature": 0.5}, (0.5, 0.0, 0, 0.0)),
        ({}, {"temperature": None, "do_sample": True}, (0.0, 0.0, 0, 0.0)),
        ({"temp": 0.0}, SAMPLED, (0.0, 0.9, 20, 0.0)),
        ({"temp": 1.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1}, SAMPLED, (1.0, 0.5, 3, 0.1)),
    ],
)
def test_the_users_choice_then_the_models_then_greedy(
    options: dict[str, Any], defaults: dict[str, Any], wanted: tuple[float, float, int, float]
) -> None:
    found = resolve(SamplingOptions(**options), defaults)
    assert (found["temp"], found["top_p"], found["top_k"], found["min_p"]) == wanted


def draws(options: SamplingOptions, defaults: dict[str, Any], count: int = 40) -> list[int]:
    sampler, processors = build(options, defaults)
    draw = Draw(sampler, processors)
    logits = mx.array([[[0.0, 1.0, 1.1, -2.0]]])
    return [int(draw(logits, mx.array([2], mx.uint32)).item()) for _ in range(count)]


def test_what_holds_of_settings_that_nobody_chose() -> None:
    held = model_defaults(SAMPLED | {"repetition_penalty": 1.1})
    assert held["temp"] == (0.7, True)
    assert held["min_p"] == (0.0, False)
    assert held["repetition_penalty"] == (1.1, True)
    assert model_defaults({})["temp"] == (0.0, False)


def test_greedy_takes_the_best() -> None:
    assert set(draws(SamplingOptions(temp=0.0), SAMPLED)) == {2}


@pytest.mark.parametrize("options", [{"temp": 1e-40}, {"temp": 1e-300}, {"temp": 1.0, "top_p": 1e-9}], ids=str)
def test_what_32_bits_can_not_hold_still_takes_the_best(options: dict[str, Any]) -> None:
    assert set(draws(SamplingOptions(**options), {})) == {2}


def test_a_temperature_spreads_and_a_seed_repeats() -> None:
    mx.random.seed(7)
    first = draws(SamplingOptions(temp=1.0), {})
    mx.random.seed(7)
    assert draws(SamplingOptions(temp=1.0), {}) == first
    assert len(set(first)) > 1
    mx.random.seed(8)
    assert draws(SamplingOptions(temp=1.0), {}) != first


def test_a_top_p_of_0_is_off() -> None:
    """As in mlx-lm, and unlike a tiny one: all tokens, though the model advises few."""
    for top_p in (0.0, 1.0):
        mx.random.seed(7)
        assert set(draws(SamplingOptions(temp=50.0, top_p=top_p), SAMPLED)) == {0, 1, 2, 3}


def test_top_k_leaves_the_best_k() -> None:
    mx.random.seed(7)
    assert set(draws(SamplingOptions(temp=1.0, top_k=2), {})) == {1, 2}


def test_counts_beyond_the_vocabulary_take_all_of_it() -> None:
    """mlx-lm refuses them; to a user they are the usual way to say: no limit."""
    for top_k in (4, 5, 10**30):
        assert len(set(draws(SamplingOptions(temp=50.0, top_k=top_k), {}))) > 2
    extra = {"min_tokens_to_keep": 10**30, "repetition_context_size": 10**30, "repetition_penalty": 1.5}
    assert len(set(draws(SamplingOptions(temp=50.0, min_p=0.99, extra=extra), {}))) > 2


def test_a_penalty_counts_the_prompt() -> None:
    """The last prompt token is 2, the best id: with a penalty the second best wins."""
    assert draws(SamplingOptions(temp=0.0, extra={"repetition_penalty": 3.0}), {}, 1) == [1]
    assert draws(SamplingOptions(temp=0.0), {"repetition_penalty": 3.0}, 1) == [1]
    assert draws(SamplingOptions(temp=0.0, extra={"repetition_penalty": 1.0}), {"repetition_penalty": 3.0}, 1) == [2]


@pytest.mark.parametrize(
    ("extra", "cause"), [({"temperature": 1}, "no such setting"), ({"presence_penalty": "much"}, "not a number")]
)
def test_a_setting_that_is_none(extra: dict[str, Any], cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        build(SamplingOptions(extra=extra), {})


def test_the_floor_masks_its_ids_so_many_times() -> None:
    draw = Draw(lambda logprobs: mx.argmax(logprobs, axis=-1), [ThinkFloor([1, 2], 3)])
    logits = mx.array([[[0.5, 1.0, 1.1, -2.0]]])
    found = [int(draw(logits, mx.array([0], mx.uint32)).item()) for _ in range(5)]
    assert found == [0, 0, 0, 2, 2]
