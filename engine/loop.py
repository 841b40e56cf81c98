"""The engine's step: schedule, run, record. One thread, every MLX graph."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, cast

import mlx.core as mx
import numpy as np

from ..cache.live import LiveCache
from ..errors import EngineFailed, MlxchatError
from .ahead import AheadRequest
from .conversations import Conversations
from .cuts import calls, cuts
from .events import Notice, PrefillProgress, TurnFailed
from .feeding import Feeding
from .hit_rate import HitRate, reuse_of
from .preparation import Preparation
from .request import Request, Run
from .reuse import Reuse
from .runner import UNLOGGED, ModelRunner
from .scripted import Gate
from .sequence import Sequence
from .turn import TurnBuilder

_TICK_S = 30.0
CLEAR_EVERY = 256  # decoded tokens between two mx.clear_cache calls, as mlx-lm does


class EngineLoop:
    """Requests wait in `waiting`, one run at a time is active; `step` moves whatever is there by one model call."""

    def __init__(self, turns: TurnBuilder, runner: ModelRunner, reuse: Reuse, gate: Gate, drop_live: bool) -> None:
        self.waiting: deque[Request] = deque()
        self.active: list[Run] = []
        self.conversations = Conversations(reuse)
        self.sequences = self.conversations.known
        self.rate = HitRate()
        self.reuse = reuse
        self._turns = turns
        self._runner = runner
        self._gate = gate
        self._drop_live = drop_live
        self._ahead = Preparation(turns.preview, turns.counting_pictures, runner, reuse)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.active or self._ahead.request)

    def prepare(self, request: AheadRequest) -> None:
        """Work for a request that hasn't come yet, in the steps that no request needs."""
        self._ahead.offer(request)

    def shut(self) -> None:
        """No more steps will come: end the active run as an interrupted one, and refuse what waits."""
        for run in self.active:
            run.request.cancelled.set()
        while self.active:
            self.step()
        self._ahead.drop()
        for request in self.waiting:
            self._give_up(request, EngineFailed("the engine has stopped", "start mlxchat again"), "")
        self.waiting.clear()

    # -- between requests --------------------------------------------------------------------------------------

    @property
    def tick_s(self) -> float | None:
        """How long to wait for a request before `idle` is called; None where it has nothing to do."""
        ttl = self.conversations.ttl
        return None if ttl is None else min(_TICK_S, max(ttl / 4, 0.01))

    def idle(self) -> None:
        """Nothing is asked for the moment: let go of what has been idle for too long."""
        self.conversations.expire()

    def forget(self, conversation: str) -> int:
        """Delete a conversation's KV but for what others use, its requests ended first; how many records that was."""
        for request in (*self.waiting, *(run.request for run in self.active)):
            if request.conversation == conversation:
                request.cancelled.set()
        while any(run.request.conversation == conversation for run in self.active):
            self.step()
        self._turns.forget_pictures(conversation)
        return self.conversations.forget(conversation)

    # -- schedule → run → record -------------------------------------------------------------------------------

    def step(self) -> None:
        """One model call for one run. Whatever goes wrong ends that run with a TurnFailed; the loop lives on."""
        if not self.waiting and not self.active:
            self._work_ahead()
            return
        run = self._schedule()
        if run is None:
            return
        try:
            if run.request.cancelled.is_set() and run.finish is None:
                run.finish = "interrupted"
            elif run.calls:
                self._prefill(run)
            elif run.feeding is not None:
                self._feed(run, run.feeding)
            else:
                self._decode(run)
            if run.finish is not None:
                self._end(run)
        except Exception as error:
            self._fail(run, error)

    def _work_ahead(self) -> None:
        request = self._ahead.request
        if request is not None:
            sequence = self.conversations.of(request.conversation, request.day)
            self.conversations.leave_all_but(sequence)
            self._ahead.step(sequence)

    def _schedule(self) -> Run | None:
        """The active run, else the next waiting request, admitted."""
        if self.active:
            return self.active[0]
        request = self.waiting.popleft()
        self._ahead.drop()
        try:
            run = self._admit(request)
        except Exception as error:
            if not isinstance(error, MlxchatError):  # ours come before anything is touched; others may leave a mess
                self.reuse.abandon(self._sequence(request))
            self._give_up(request, error, "")
            return None
        self.active.append(run)
        return run

    def _sequence(self, request: Request) -> Sequence:
        if request.uncached:
            return Sequence(UNLOGGED, date=request.day)
        return self.conversations.of(request.conversation, request.day)

    def _admit(self, request: Request) -> Run:
        """Render, restore, and lay out the calls."""
        mx.reset_peak_memory()
        self.conversations.expire()
        sequence = self._sequence(request)
        run = self._turns.start(request, sequence, self.reuse.apart() if request.uncached else self.reuse)
        if not request.uncached:
            self.conversations.leave_all_but(sequence)
        ids, pictures = run.prompt.ids, run.prompt.pictures
        run.stats.divergence = sequence.divergence(run.prompt.elements, request.messages, pictures)
        run.stats.image_tokens = sum(span.image.tokens for span in pictures)
        run.changed, run.fed_before = sequence.what_changed(request.options, request.messages), sequence.repeated
        live = run.reuse.begin(sequence, run.prompt.elements, run.stats, pictures)
        if live.length and sequence.number:
            restored = ids[: live.length].tolist()
            kind = run.stats.restore_kind
            self._runner.log.add(request.number, sequence.number, 0, restored, pictures, restored=kind)
        self._turns.note_prompt(run)
        self._turns.close_at_budget(run)
        whole = pictures if self._turns.whole_pictures else ()
        ends = cuts(len(ids), (mark.position for mark in run.prompt.marks), whole=whole)
        run.calls.extend(calls(live.length, ends))
        run.prefill_started = time.perf_counter()
        request.events.put(PrefillProgress(live.length, len(ids), live.length))
        return run

    # -- prefill -----------------------------------------------------------------------------------------------

    def _prefill(self, run: Run) -> None:
        start, end = run.calls.popleft()
        run.calls_made += 1
        if self._stopped_at(run, f"prefill.{run.calls_made}"):
            return
        length = len(run.prompt.ids)
        live = self._live(run)
        fed = mx.array(run.prompt.ids[start:end].astype(np.uint32))
        with self._turns.counting_pictures(run.stats):
            logits = self._runner.forward(run.request.number, run.sequence.number, live, start, fed)
        if end == length:
            run.lazy = run.draw(logits, mx.array(run.prompt.ids.astype(np.uint32)))
            _begin(run.lazy)
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

    def _stopped_at(self, run: Run, point: str) -> bool:
        """Whether the request was cancelled, after waiting where a test holds it."""
        self._gate.reach(f"{run.request.number}.{point}", run.request.cancelled.is_set)
        if run.request.cancelled.is_set():
            run.finish = "interrupted"
        return run.finish is not None

    # -- decode ------------------------------------------------------------------------------------------------

    def _decode(self, run: Run) -> None:
        """Read the id drawn last, with the call that feeds it already under way, and draw the next one."""
        number = run.request.number
        if self._stopped_at(run, f"token.{len(run.ids) + 1}"):
            return
        forced = run.forced.popleft() if run.forced else None
        drawn = mx.array([forced], mx.uint32) if forced is not None else run.lazy
        assert drawn is not None
        live = self._live(run)
        last = len(run.ids) + 1 >= run.max_tokens
        before = live.state_now("undo") if live.layout.states is not None and not last else None
        if not last:
            logits = self._runner.forward(number, run.sequence.number, live, live.length, drawn)
            run.lazy = run.draw(logits, drawn)
            _begin(run.lazy)
        token = int(cast(int, drawn.item()))
        if forced is None and token in self._turns.end_ids:
            run.finish = "stop"
            if not last:
                live.append([token])
                self._take_back(live, before)
            return
        run.accept(token, forced=forced is not None)
        if run.stops.stopped:
            run.finish = "stop"
        elif last:
            run.finish = "length"
        if not last:
            live.append([token])
            self._record_decode(run, live)
        self._turns.close_at_budget(run)

    def _feed(self, run: Run, feeding: Feeding) -> None:
        """The next call of a recorded answer, which is a reply like any other once it is fed."""
        if self._stopped_at(run, f"token.{len(run.ids) + 1}"):
            return
        live = self._live(run)
        if feeding.step(run, self._runner, live):
            self._record_decode(run, live)
        else:
            run.finish = "length" if feeding.cut else "stop"

    def _record_decode(self, run: Run, live: LiveCache) -> None:
        if live.length % 256 == 0:
            self._runner.settle(live)
        run.stats.checkpoint_bytes += run.reuse.record_decode(run.sequence, self._turns.will_drop(run))
        if len(run.ids) % CLEAR_EVERY == 0:
            mx.clear_cache()

    @staticmethod
    def _take_back(live: LiveCache, before: Any) -> None:
        """Un-feed the end token: only the next prompt shows which end token the template writes."""
        if before is not None:
            live.states.append(before)
        live.trim(live.length - 1)
        if before is not None:
            live.states.remove(before)

    # -- end ---------------------------------------------------------------------------------------------------

    def _end(self, run: Run) -> None:
        self.active.remove(run)
        run.end()
        live = self._live(run)
        self._runner.settle(live)
        run.lazy = None
        self._turns.finish(run)
        self._turns.forget_pixels()
        run.stats.checkpoint_bytes += run.reuse.end(run.sequence)
        if self._drop_live:
            run.stats.checkpoint_bytes += run.reuse.drop_live(run.sequence)
        if not run.request.uncached:
            self._count(run)
        self._runner.log.flush()
        mx.clear_cache()
        self._turns.deliver(run)

    def _count(self, run: Run) -> None:
        """Add the turn to the process's hit rate, and say once that it has fallen."""
        self.conversations.rest(run.sequence)
        if self.reuse.store is not None:
            self.reuse.store.keep_notes()
        warning = self.rate.add(reuse_of(run.stats, run.fed_before, run.changed, over_budget=self.reuse.is_over_budget))
        if warning is not None:
            run.request.events.put(Notice(warning))

    def _fail(self, run: Run, error: Exception) -> None:
        """The run ends, at whatever point; its caches may be in any state, so they are let go."""
        if run in self.active:
            self.active.remove(run)
        run.reuse.abandon(run.sequence)
        run.lazy = None
        self._runner.log.flush()
        self._give_up(run.request, error, run.text)

    @staticmethod
    def _give_up(request: Request, error: Exception, partial: str) -> None:
        if not isinstance(error, MlxchatError):
            failed = EngineFailed(
                f"the model run failed: {error or type(error).__name__}", "run again with -vv for the traceback"
            )
            failed.__cause__ = error
            error = failed
        request.events.put(TurnFailed(error, partial))

    @staticmethod
    def _live(run: Run) -> LiveCache:
        assert run.sequence.live is not None
        return run.sequence.live


def _anchor_at(run: Run, end: int) -> tuple[str | None, bool]:
    """The mark that a recurrent state is held for at `end`, and whether the prompt's last rows are kept there.

    A mark at the very end of the prompt holds its state one token earlier, where the same prompt again (a retry) can
    use it too. The rows do reach the end then: they serve every position before it.
    """
    length = len(run.prompt.ids)
    kinds = {mark.position: mark.kind for mark in reversed(run.prompt.marks)}
    if end == length:
        return None, length in kinds
    kind = kinds.get(end) or (kinds.get(length) if end == length - 1 else None)
    return kind, end == length - 1 and length not in kinds


def _begin(array: mx.array) -> None:
    """Start computing without waiting."""
    mx.async_eval(array)  # type: ignore[no-untyped-call]
