"""Measures the engine it runs in. Engine thread only."""

from __future__ import annotations

import time

import mlx.core as mx

from .runner import UNLOGGED
from .setup import Machinery

_WARM, _TIMED = 16, 128


def prefill_rate(machinery: Machinery) -> float:
    """Tokens per second of a short prefill through caches of its own; an estimate, long prompts are slower."""
    live = machinery.loop.reuse.apart().fresh()
    vocabulary = max(2, len(machinery.model.tokenizer))
    seconds = 0.0
    for count in (_WARM, _TIMED):
        ids = mx.arange(live.length, live.length + count, dtype=mx.uint32) % vocabulary
        started = time.perf_counter()
        mx.eval(machinery.runner.forward(0, UNLOGGED, live, live.length, ids)[:, -1])
        machinery.runner.settle(live)
        seconds = time.perf_counter() - started
        live.append(ids.tolist())
        live.compact()
    mx.clear_cache()
    return _TIMED / seconds


def active_bytes() -> int:
    """Bytes that MLX holds."""
    return mx.get_active_memory()
