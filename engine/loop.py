"""The engine's step: schedule, run, record. One thread, every MLX graph."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import MlxchatError
from .admission import Admission, first_free
from .ahead import AheadRequest
from .beginning import Beginning
from .conversations import Conversations
from .decoding import Decoder
from .ending import Ending, give_up, stopped
from .hit_rate import HitRate
from .prefilling import Prefiller
from .preparation import Preparation
from .request import Request, Run
from .reuse import Reuse
from .runner import ModelRunner
from .scripted import Gate
from .turn import TurnBuilder

_TICK_S = 30.0
_TICK_AT_ONCE_S = 1.0  # where nothing may stay: an idle engine is to be idle all the same
_MOST_IN_ROW = 4  # prefill calls while others wait to decode, if they are short: marks cut prompts into small ones
_SHORT_ROW = 256  # tokens of all calls in such a row


class EngineLoop:
    """Requests wait in `waiting`, up to `parallel` runs are `active`; `step` moves some of them by one model call.

    lets_go     asked at the end of each run: whether it holds no memory from then on
    together    whether all runs that decode share a call; without it they take turns
    admission   asked about each run that would be active beside others
    """

    def __init__(
        self,
        turns: TurnBuilder,
        runner: ModelRunner,
        reuse: Reuse,
        gate: Gate,
        lets_go: Callable[[], bool],
        admission: Admission,
        parallel: int = 1,
        together: bool = False,
    ) -> None:
        self.waiting: deque[Request] = deque()
        self.active: list[Run] = []
        self.has_failed = False  # for no run's fault: no more steps may come
        self.conversations = Conversations(reuse, recent=parallel)
        self.sequences = self.conversations.known
        self.rate = HitRate()
        self.reuse = reuse
        self._turns = turns
        self._runner = runner
        self._admission = admission
        self._parallel = parallel
        self._together = together
        self._beginning = Beginning(turns, runner, self.conversations, reuse)
        self._ending = Ending(turns, runner, self.conversations, self.rate, lets_go)
        self._prefiller = Prefiller(turns, runner, gate)
        self._decoder = Decoder(turns, runner, gate, self._apart)
        self._ahead = Preparation(turns.preview, turns.counting_pictures, runner, reuse)
        self._row: list[int] = []  # tokens of the prefill calls that others have waited for
        self._busy: Run | None = None
        self._idle_at = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.active or self._ahead.request)

    def prepare(self, request: AheadRequest) -> None:
        """Work for a request that hasn't come yet, in the steps that no request needs."""
        self._ahead.offer(request)

    def shut(self) -> None:
        """No more steps will come: refuse what waits, and end the active runs as interrupted ones."""
        for run in self.active:
            run.request.cancelled.set()
        self._ahead.drop()
        while self.waiting:  # before the steps, which may fail
            give_up(self.waiting.popleft(), stopped(), "")
        while self.active:
            self.step()

    def break_off(self, error: Exception) -> None:
        """Something failed for which no run is to blame: every request ends with it, and no more steps may come."""
        self.has_failed = True
        ended = [*((run.request, run.text) for run in self.active), *((request, "") for request in self.waiting)]
        for run in self.active:  # a call may have been under way: a state past its position must not be parked
            run.sequence.live = run.sequence.advance = None
        self.active.clear()
        self.waiting.clear()
        self._ahead.drop()
        for request, partial in ended:
            give_up(request, error, partial)

    @contextmanager
    def _for_nobodys_fault(self) -> Iterator[None]:
        """Around steps in the middle of something else: what fails in them breaks off, and goes on up."""
        try:
            yield
        except Exception as error:
            self.break_off(error)
            raise

    # -- between requests --------------------------------------------------------------------------------------

    @property
    def idle_in_s(self) -> float | None:
        """How long to wait for a request before `idle` is called; None where it has nothing to do."""
        ages = [age for age in (self.conversations.ttl, self.conversations.park) if age is not None]
        if not ages:
            return None
        tick = min(_TICK_S, min(ages) / 4 or _TICK_AT_ONCE_S)
        return max(0.0, self._idle_at + tick - time.monotonic())

    def idle(self) -> None:
        """Nothing is asked for the moment: let go of what has been idle for too long."""
        self._idle_at = time.monotonic()
        self.conversations.expire()
        self.conversations.park_idle()

    def forget(self, conversation: str) -> int:
        """Delete a conversation's KV but for what others use, its requests ended first; how many records that was.

        Raises what a step fails with, after which no more may come.
        """
        for request in (*self.waiting, *(run.request for run in self.active)):
            if request.conversation == conversation:
                request.cancelled.set()
        if self._ahead.request is not None and self._ahead.request.conversation == conversation:
            self._ahead.drop()  # it would feed and write again what is to go
        with self._for_nobodys_fault():
            while any(run.request.conversation == conversation for run in self.active):
                self.step()
        self._turns.forget_pictures(conversation)
        return self.conversations.forget(conversation)

    # -- schedule → run → record -------------------------------------------------------------------------------

    def step(self) -> None:
        """One model call: a prefill call of one run, or one id for all that decode, the two in turn.

        Whatever goes wrong for a run ends that run with a TurnFailed; the others and the loop live on.
        """
        if not self.waiting and not self.active:
            self._work_ahead()
            return
        self._admit_next()
        for run in self.active:
            if run.request.cancelled.is_set() and run.finish is None:
                run.finish = "interrupted"
        if not self._end_finished():
            self._call()
            self._end_finished()

    def _call(self) -> None:
        """The one that is due."""
        long = next((run for run in self.active if not run.decodes), None)
        if long is None or self._row_is_full(long.next_tokens):
            self._row.clear()
            self._decode()
            return
        self._row.append(long.next_tokens)
        self._busy = long
        with self._apart(long):
            (self._prefiller.step if long.calls else self._decoder.feed_recorded)(long)
        self._busy = None

    def _row_is_full(self, tokens: int) -> bool:
        """Whether those that decode have waited long enough for a prefill call of so many tokens to wait for them."""
        if not any(run.decodes for run in self.active):
            self._row.clear()
        return bool(self._row) and (len(self._row) >= _MOST_IN_ROW or sum(self._row) + tokens > _SHORT_ROW)

    def _decode(self) -> bool:
        """One id for all that decode, or for the one that has waited longest; whether there are any."""
        runs = [run for run in self.active if run.decodes and run is not self._busy]
        if runs and not self._together:
            runs = runs[:1]
            self.active.remove(runs[0])
            self.active.append(runs[0])
        self._decoder.step(runs)
        return bool(runs)

    def let_others_decode(self) -> bool:
        """In the middle of what takes one run long (a restore, a picture): a step for the others, if there are any.

        Raises what such a step fails with, after which no more may come.
        """
        with self._for_nobodys_fault():  # else it would pass for that of the one run
            worked = self._decode()
            self._end_finished()
        return worked

    def _end_finished(self) -> bool:
        """Whether any run had come to its end."""
        finished = [run for run in self.active if run.finish is not None]
        for run in finished:
            with self._apart(run):
                self._end(run)
        return bool(finished)

    @contextmanager
    def _apart(self, run: Run) -> Iterator[None]:
        """Around what concerns one run only."""
        try:
            yield
        except Exception as error:
            self._fail(run, error)

    def _work_ahead(self) -> None:
        request = self._ahead.request
        if request is not None:
            sequence = self.conversations.of(request.conversation, request.day)
            self.conversations.leave_all_but(sequence)
            self._ahead.step(sequence)

    # -- the beginning of a run --------------------------------------------------------------------------------

    def _admit_next(self) -> None:
        """Let the next waiting request in, if there is room, and nothing left to prefill that it might share."""
        if len(self.active) >= self._parallel or any(run.calls for run in self.active):
            return
        request = first_free(self.waiting, self.active)
        if request is None or not (request.cancelled.is_set() or self._admission.asks_again(self.active)):
            return
        self._ahead.drop()
        try:
            run = self._admission.rendered(request) or self._beginning.render(request, self.active)
            if self._admission.holds_back(run, self.active):
                return
            self.waiting.remove(request)
            self._beginning.restore(run, self.active)
            self.active.append(run)
        except Exception as error:
            if request in self.waiting:
                self.waiting.remove(request)
            try:
                if not isinstance(error, MlxchatError):  # ours come before anything is touched; others leave a mess
                    self._beginning.abandon(request)
            finally:
                give_up(request, error, "")

    # -- the end of a run --------------------------------------------------------------------------------------

    def _end(self, run: Run) -> None:
        self.active.remove(run)
        self._runner.part()
        self._ending.end(run, looking=self._busy is not None or any(other.calls for other in self.active))

    def _fail(self, run: Run, error: Exception) -> None:
        if self.has_failed:  # under this run, while others decoded: it has been told with them
            return
        if run in self.active:
            self.active.remove(run)
        self._runner.part()
        self._ending.fail(run, error)
