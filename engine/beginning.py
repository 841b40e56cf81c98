"""The beginning of a run: its prompt, where its sequence is restored to, and the calls that are left from there."""

from __future__ import annotations

import time
from collections.abc import Collection

import mlx.core as mx

from .conversations import Conversations
from .cuts import calls, cuts
from .events import PrefillProgress
from .request import Request, Run
from .reuse import Reuse
from .runner import UNLOGGED, ModelRunner
from .sequence import Sequence
from .turn import TurnBuilder


class Beginning:
    """Engine thread only. `active` are the runs beside which the new one begins."""

    def __init__(self, turns: TurnBuilder, runner: ModelRunner, conversations: Conversations, reuse: Reuse) -> None:
        self._turns = turns
        self._runner = runner
        self._conversations = conversations
        self._reuse = reuse

    def render(self, request: Request, active: Collection[Run]) -> Run:
        """The request with its prompt; no KV has been touched. Raises what `TurnBuilder.start` raises."""
        if not active:
            mx.reset_peak_memory()
        for run in active:
            self._conversations.rest(run.sequence)
        self._conversations.expire()
        reuse = self._reuse.apart() if request.uncached else self._reuse
        return self._turns.start(request, self._sequence(request), reuse)

    def restore(self, run: Run, active: Collection[Run]) -> None:
        """Put its sequence as far along the prompt as it can be, and lay out the prefill calls that are left."""
        request, sequence = run.request, run.sequence
        if not request.uncached:
            self._conversations.leave_all_but(sequence, *(other.sequence for other in active))
        position = self._restored(run)
        self._turns.note_prompt(run)
        self._turns.close_at_budget(run)
        length = len(run.prompt.ids)
        whole = run.prompt.pictures if self._turns.whole_pictures else ()
        ends = cuts(length, (mark.position for mark in run.prompt.marks), whole=whole)
        run.calls.extend(calls(position, ends))
        run.prefill_started = time.perf_counter()
        request.events.put(PrefillProgress(position, length, position))

    def abandon(self, request: Request) -> None:
        """It failed with an error that may have left its caches in any state: let go of them."""
        self._reuse.abandon(self._sequence(request))

    def _sequence(self, request: Request) -> Sequence:
        if request.uncached:
            return Sequence(UNLOGGED, date=request.day)
        return self._conversations.of(request.conversation, request.day)

    def _restored(self, run: Run) -> int:
        """The position that the sequence's caches were brought to."""
        request, sequence, stats = run.request, run.sequence, run.stats
        pictures = run.prompt.pictures
        stats.divergence = sequence.divergence(run.prompt.elements, request.messages, pictures)
        stats.image_tokens = sum(span.image.tokens for span in pictures)
        run.changed, run.fed_before = sequence.what_changed(request.options, request.messages), sequence.repeated
        live = run.reuse.begin(sequence, run.prompt.elements, stats, pictures)
        if live.length and sequence.number:
            restored = run.prompt.ids[: live.length].tolist()
            self._runner.log.add(request.number, sequence.number, 0, restored, pictures, restored=stats.restore_kind)
        return live.length
