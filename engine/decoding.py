"""One decoded id for each run of a batch, in one model call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from ..cache.live import HeldState, LiveCache
from .prefilling import begin
from .request import Run
from .runner import Fed, ModelRunner
from .scripted import Gate
from .turn import TurnBuilder

CLEAR_EVERY = 256  # decoded tokens between two mx.clear_cache calls, as mlx-lm does

Apart = Callable[[Run], AbstractContextManager[None]]
"""Around what concerns one run: an exception ends that run, not the others."""


@dataclass(frozen=True)
class Next:
    """What a run is about to feed.

    drawn    uint32 [1], lazy where it was sampled
    known    its value where it wasn't: forced, or of a recorded reply
    last     it is read but not fed: the answer is as long as it may be
    before   the recurrent state before it, to go back to; None where there is none
    """

    run: Run
    drawn: mx.array
    known: int | None
    last: bool
    before: HeldState | None


class Decoder:
    """Engine thread only."""

    def __init__(self, turns: TurnBuilder, runner: ModelRunner, gate: Gate, apart: Apart) -> None:
        self._turns = turns
        self._runner = runner
        self._gate = gate
        self._apart = apart

    def step(self, runs: Sequence[Run]) -> None:
        """Read the ids drawn last, with the call that feeds them already under way, and draw the next ones."""
        found: list[Next] = []
        for run in runs:
            with self._apart(run):
                if (one := self._next(run)) is not None:
                    found.append(one)
        self._feed([one for one in found if not one.last])
        for one in found:
            if one.run.lazy is None and not one.last:
                continue  # its draw failed
            with self._apart(one.run):
                if one.run.feeding is not None:
                    self._take_recorded(one)
                else:
                    self._take(one)

    def feed_recorded(self, run: Run) -> None:
        """The next call of a recorded answer that is fed by the block, as a reply like any other."""
        assert run.feeding is not None
        if self._gate.stops(run, f"token.{len(run.ids) + 1}"):
            return
        if run.feeding.step(run, self._runner, run.live):
            self._record(run)
        else:
            run.finish = "length" if run.feeding.cut else "stop"

    def _next(self, run: Run) -> Next | None:
        """What `run` feeds now; None if it has come to its end."""
        if self._gate.stops(run, f"token.{len(run.ids) + 1}"):
            return None
        if run.feeding is not None:
            ids = run.feeding.take(run.live.length)
            if not ids:
                run.finish = "length" if run.feeding.cut else "stop"
                return None
            return Next(run, mx.array(ids, mx.uint32), ids[0], False, None)
        forced = run.forced.popleft() if run.forced else None
        drawn = mx.array([forced], mx.uint32) if forced is not None else run.lazy
        assert drawn is not None
        last = len(run.ids) + 1 >= run.max_tokens
        undoes = run.live.layout.states is not None and not last
        return Next(run, drawn, forced, last, run.live.state_now("undo") if undoes else None)

    def _feed(self, fed: Sequence[Next]) -> None:
        """One call for all, and a draw for each."""
        for one in fed:
            one.run.lazy = None
        rows = self._logits(fed)
        for one, logits in zip(fed, rows, strict=True):
            if logits is not None:
                with self._apart(one.run):
                    one.run.lazy = one.run.draw(logits, one.drawn)
        begin(*(one.run.lazy for one in fed if one.run.lazy is not None))

    def _logits(self, fed: Sequence[Next]) -> list[mx.array | None]:
        """[1, 1, vocabulary] for each; None for a run that failed."""
        if len(fed) < 2:
            return [self._alone(one) for one in fed]
        try:
            logits = self._runner.forward_together(
                [Fed(one.run.request.number, one.run.sequence.number, one.run.live, one.drawn) for one in fed]
            )
        except Exception:  # whose fault it is shows when each makes the call by itself
            self._runner.part()
            for one in fed:
                one.run.live.unfeed()
            return [self._alone(one) for one in fed]
        return [logits[row : row + 1] for row in range(len(fed))]

    def _alone(self, one: Next) -> mx.array | None:
        run, live = one.run, one.run.live
        logits: mx.array | None = None
        with self._apart(run):
            logits = self._runner.forward(run.request.number, run.sequence.number, live, live.length, one.drawn)
        return logits

    def _take(self, one: Next) -> None:
        """The id is known now: it ends the reply, or goes on with it."""
        run, live = one.run, one.run.live
        token = int(cast(int, one.drawn.item()))
        if one.known is None and token in self._turns.end_ids:
            run.finish = "stop"
            if not one.last:
                live.append([token])
                self._take_back(live, one.before)
            return
        run.accept(token, forced=one.known is not None)
        if run.stops.stopped:
            run.finish = "stop"
        elif one.last:
            run.finish = "length"
        if not one.last:
            live.append([token])
            self._record(run)
        self._turns.close_at_budget(run)

    @staticmethod
    def _take_back(live: LiveCache, before: HeldState | None) -> None:
        """Un-feed the end token: only the next prompt shows which end token the template writes."""
        if before is not None:
            live.states.append(before)
        live.trim(live.length - 1)
        if before is not None:
            live.states.remove(before)

    def _take_recorded(self, one: Next) -> None:
        assert one.known is not None
        one.run.live.append([one.known])
        one.run.accept(one.known)
        self._record(one.run)

    def _record(self, run: Run) -> None:
        if run.live.length % 256 == 0:
            self._runner.settle(run.live)
        run.stats.checkpoint_bytes += run.reuse.record_decode(run.sequence, self._turns.will_drop(run))
        if len(run.ids) % CLEAR_EVERY == 0:
            mx.clear_cache()
