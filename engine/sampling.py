"""Samplers and logits processors: mlx-lm's, set up from the user's options and the model's generation_config.json."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from ..errors import UsageError
from .options import SamplingOptions

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]

_LARGEST = (1 << 31) - 1
"""A count that is larger means no more than this one to any vocabulary or context, and MLX can't take it."""

_LEAST = 1e-6
"""Below this a temperature or a top_p leaves the likeliest token only, and 32 bits can't hold what follows from it."""

_SAMPLER_EXTRA = {"xtc_probability": float, "xtc_threshold": float, "min_tokens_to_keep": int}
_PROCESSOR_EXTRA = {
    "repetition_penalty": float,
    "repetition_context_size": int,
    "presence_penalty": float,
    "presence_context_size": int,
    "frequency_penalty": float,
    "frequency_context_size": int,
}


def resolve(options: SamplingOptions, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Sampler settings: the user's, else generation_config.json's (only if it samples at all), else greedy."""
    sampled = bool(defaults.get("do_sample", "temperature" in defaults))

    def pick(chosen: Any, name: str, otherwise: Any) -> Any:
        if chosen is not None:
            return chosen
        value = defaults.get(name) if sampled else None
        return otherwise if value is None else value

    temp, top_p = float(pick(options.temp, "temperature", 0.0)), float(pick(options.top_p, "top_p", 0.0))
    return {
        "temp": 0.0 if temp < _LEAST or 0 < top_p < _LEAST else temp,
        "top_p": top_p,
        "top_k": int(pick(options.top_k, "top_k", 0)),
        "min_p": float(pick(options.min_p, "min_p", 0.0)),
    }


def model_defaults(generation: Mapping[str, Any]) -> dict[str, tuple[float, bool]]:
    """What holds of settings that nobody chose, by name; and whether it is the model's generation_config.json's."""
    nothing, plain = resolve(SamplingOptions(), {}), resolve(SamplingOptions(), generation)
    found: dict[str, tuple[float, bool]] = {name: (value, value != nothing[name]) for name, value in plain.items()}
    penalty = _repetition_penalty(generation)
    return found | {"repetition_penalty": (penalty, penalty != 1.0)}


def build(options: SamplingOptions, defaults: Mapping[str, Any]) -> tuple[Sampler, list[Processor]]:
    """A sampler over log probabilities [1, vocabulary] and the processors that go before it.

    Raises UsageError for a `-o` key that neither knows, or a value of the wrong kind.
    """
    extra = {key: _convert(key, value) for key, value in options.extra.items()}
    kept = {k: v for k, v in extra.items() if k in _SAMPLER_EXTRA}
    sampler = _fitting(resolve(options, defaults) | kept)
    penalties = {k: v for k, v in extra.items() if k in _PROCESSOR_EXTRA}
    advised = _repetition_penalty(defaults)
    if advised != 1.0:
        penalties.setdefault("repetition_penalty", advised)
    return sampler, make_logits_processors(**penalties)


def _repetition_penalty(defaults: Mapping[str, Any]) -> float:
    """What generation_config.json advises; 1 is none."""
    return float(defaults.get("repetition_penalty", 1.0))


def _fitting(settings: dict[str, Any]) -> Sampler:
    """mlx-lm's sampler, its counts cut to the vocabulary that the first logits show: it refuses larger ones."""
    made: Sampler | None = None

    def sample(logprobs: mx.array) -> mx.array:
        nonlocal made
        if made is None:
            vocabulary = logprobs.shape[-1]
            top_k = settings["top_k"] if settings["top_k"] < vocabulary else 0
            keep = min(settings.get("min_tokens_to_keep", 1), vocabulary)
            made = make_sampler(**{**settings, "top_k": top_k, "min_tokens_to_keep": keep})
        return made(logprobs)

    return sample


def _convert(key: str, value: Any) -> Any:
    known = _SAMPLER_EXTRA | _PROCESSOR_EXTRA
    if key not in known:
        raise UsageError(f"-o {key}: no such setting", f"known settings: {', '.join(sorted(known))}")
    try:
        return min(known[key](value), _LARGEST)
    except (TypeError, ValueError):
        raise UsageError(f"-o {key}={value}: not a number", f"for example -o {key}=1") from None


class OwnRandom:
    """Random numbers of one run among several, the same as if it ran alone: a context for each draw.

    MLX has one key for all, which can be read but only be set by a seed; a seed's two halves are the key. Reading it
    waits for the draw before.
    """

    def __init__(self, seed: int) -> None:
        self._key: int | mx.array = seed % (1 << 64)  # MLX takes 64 bits

    def __enter__(self) -> None:
        if isinstance(self._key, mx.array):
            high, low = (int(half) for half in np.array(self._key))
            self._key = (high << 32) | low
        mx.random.seed(self._key)

    def __exit__(self, *exc: object) -> None:
        self._key = cast(Any, mx.random.state)[0]
        mx.random.seed(secrets.randbits(64))  # nobody else's draws follow from this run's seed


class ThinkFloor:
    """A processor that masks ids until it has been asked `minimum` times (one ask per sampled id). Test switch only."""

    def __init__(self, masked: list[int], minimum: int) -> None:
        self._masked = mx.array(masked)
        self._left = minimum

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """[1, vocabulary] in and out; `tokens` is not looked at."""
        if self._left <= 0:
            return logits
        self._left -= 1
        return mx.put_along_axis(logits, self._masked[None], mx.array(-mx.inf, logits.dtype), axis=-1)
