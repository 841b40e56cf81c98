"""One prefill call of one run, and what is recorded after it."""

from __future__ import annotations

import time

import mlx.core as mx
import numpy as np

from .events import PrefillProgress
from .marks import BRANCHES
from .request import Run
from .runner import ModelRunner
from .scripted import Gate
from .turn import TurnBuilder


class Prefiller:
    """Engine thread only."""

    def __init__(self, turns: TurnBuilder, runner: ModelRunner, gate: Gate) -> None:
        self._turns = turns
        self._runner = runner
        self._gate = gate

    def step(self, run: Run) -> None:
        """The next of `run.calls`. Must hold: there is one."""
        start, end = run.calls.popleft()
        run.calls_made += 1
        if self._gate.stops(run, f"prefill.{run.calls_made}"):
            return
        length = len(run.prompt.ids)
        live = run.live
        fed = mx.array(run.prompt.ids[start:end].astype(np.uint32))
        with self._turns.counting_pictures(run.stats):
            logits = self._runner.forward(run.request.number, run.sequence.number, live, start, fed)
        if end == length:
            run.lazy = run.draw(logits, mx.array(run.prompt.ids.astype(np.uint32)))
            begin(run.lazy)
        del logits  # its graph refers to the KV buffers
        self._runner.settle(live)
        live.append(run.prompt.ids[start:end])
        kind, tail = _anchor_at(run, end)
        run.stats.checkpoint_bytes += run.reuse.record_prefill(run.sequence, start, end, kind, tail)
        mx.clear_cache()
        run.request.events.put(PrefillProgress(end, length, run.stats.cached_tokens))
        if end == length:
            run.prefill_ended = time.perf_counter()
            if run.feeding is not None:  # what would have been said first is known now
                mx.eval(run.lazy)
                run.first_token_at = run.prefill_ended = time.perf_counter()


def _anchor_at(run: Run, end: int) -> tuple[str | None, bool]:
    """The mark that a recurrent state is held for at `end`, and whether a record of rows ends there.

    One does at the prompt's end, and where others will leave it. A mark at the very end of the prompt holds its state
    one token earlier, where the same prompt again (a retry) can use it too. The rows do reach the end then: they serve
    every position before it.
    """
    length = len(run.prompt.ids)
    kinds = {mark.position: mark.kind for mark in reversed(run.prompt.marks)}
    if end == length:
        return None, length in kinds
    kind = kinds.get(end) or (kinds.get(length) if end == length - 1 else None)
    leaves = any(mark.position == end and mark.kind in BRANCHES for mark in run.prompt.marks)
    return kind, leaves or (end == length - 1 and length not in kinds)


def begin(*arrays: mx.array) -> None:
    """Start computing without waiting."""
    mx.async_eval(*arrays)  # type: ignore[no-untyped-call]
