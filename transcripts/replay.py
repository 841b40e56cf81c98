"""Runs the requests of a transcript on an engine, conversations side by side, and says what each of them cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from ..engine.chat import next_number
from ..engine.engine import Engine
from ..engine.events import TurnDone, TurnFailed
from ..engine.messages import assistant
from ..engine.options import RequestOptions
from ..engine.probe import active_bytes, prefill_rate
from ..engine.recorded import Recorded
from ..engine.request import Request
from ..engine.setup import Machinery
from ..engine.stats import RequestStats
from ..errors import ContextExceeded, EngineFailed, MlxchatError
from .in_flight import Ended, InFlight
from .jobs import Job
from .lanes import Lanes
from .padding import padding_of
from .plan import Planner
from .planned import Planned
from .prompts import Prompts
from .rows import Disk, Row
from .settings import Settings

_PATIENCE_S = 60.0  # for the writer, before its counts are read


@dataclass
class _Clock:
    started: float = field(default_factory=time.perf_counter)

    def now(self) -> float:
        return time.perf_counter() - self.started

    def at(self, counter: float) -> float:
        """A value of time.perf_counter as seconds since the begin."""
        return counter - self.started


@dataclass(frozen=True)
class _Sent:
    """A request under way. `row`: what came of the same prompt with the cache, if this one runs without."""

    planned: Planned
    row: Row | None = None


class Replay:
    """A run over one engine. `stop` may be called from a signal handler; `stopped` then says so.

    on_notice   gets lines about a conversation that waits for others
    """

    def __init__(
        self, engine: Engine, settings: Settings, on_notice: Callable[[str], None] = lambda text: None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._flights = InFlight(engine, lambda request, text: on_notice(f"{request.conversation}: {text}"))
        self._sent: dict[int, _Sent] = {}
        self._compare: frozenset[int] = frozenset()
        self._clock = _Clock()
        self.stopped = False
        self.info = engine.info
        self.limit = min(engine.info.context_limit, settings.max_context or engine.info.context_limit)
        self._prompts: Prompts = self._on_engine(lambda machinery: prompts_of(machinery, settings))
        self._planner: Planner = self._on_engine(lambda machinery: self._planner_of(machinery))
        self._before = Disk()
        self._before = self.disk()

    def stop(self) -> None:
        """End the running requests between two model calls, and start no other."""
        self.stopped = True
        self._flights.stop()

    def plan(self, jobs: Sequence[Job]) -> Iterator[Planned]:
        """What each job must cost, in order, on the engine's own tokenizer."""
        for job in jobs:
            if self.stopped:
                return
            yield self._on_engine(lambda machinery, job=job: self._planner.plan(job))

    def rate(self) -> float:
        """Prefill tokens per second of this model, measured on a short run that leaves nothing behind."""
        rate: float = self._on_engine(prefill_rate)
        return rate

    def run(self, planned: Sequence[Planned], compare: frozenset[int] = frozenset()) -> Iterator[Row]:
        """A row for each, as it ends; the jobs numbered in `compare` once more from nothing, right after.

        What ends a request that should have run ends its lane too: rows of the outcome "failed". It is raised where
        there is one lane only, or the engine itself has ended.
        """
        self._clock, self._compare = _Clock(), compare
        lanes = Lanes(planned, self._settings.real_time)
        try:
            while True:
                yield from self._start(lanes)
                if not self._flights and (lanes.done or self.stopped):
                    return
                full = len(self._flights) >= self._settings.parallel
                ended = self._flights.next(None if full else lanes.pause(self._clock.now()))
                if ended is not None:
                    yield from self._take(ended, lanes)
        finally:
            self._flights.end()

    def _start(self, lanes: Lanes) -> Iterator[Row]:
        """Send what may go now; rows of what can't run."""
        while not self.stopped and len(self._flights) < self._settings.parallel:
            ready = lanes.take(self._clock.now())
            if ready is None:
                return
            if ready.outcome == "run":
                self._send(ready)
                continue
            lanes.ended(ready, self._clock.now())
            yield Row(ready, ready.outcome, _unrun(ready))

    def seconds(self) -> float:
        """Since the run began."""
        return self._clock.now()

    def disk(self) -> Disk:
        """What the scratch file has seen since this replay began."""
        disk: Disk = self._on_engine(_disk)
        return disk.since(self._before)

    def memory(self) -> int:
        """Bytes that MLX holds now."""
        held: int = self._on_engine(lambda machinery: active_bytes())
        return held

    # -- one request -------------------------------------------------------------------------------------------

    def _send(self, planned: Planned) -> None:
        """The request as it was recorded."""
        settings, job = self._settings, planned.job
        recorded = None
        if settings.generate is None:
            recorded = Recorded(job.answer or assistant(""), settings.feed, self._reply_ids(job))
        longest = settings.generate if settings.generate is not None else 1
        self._ask(_Sent(planned), self._options(planned, longest), recorded)

    def _ask(self, sent: _Sent, options: RequestOptions, recorded: Recorded | None, uncached: bool = False) -> None:
        job = sent.planned.job
        ids = self._prompts.synthetic.prompt(job) if job.hash_ids else None
        request = Request(
            next_number(), job.conversation, job.messages, options, recorded=recorded, ids=ids, uncached=uncached
        )
        self._sent[request.number] = sent
        self._flights.send(request)

    def _take(self, ended: Ended, lanes: Lanes) -> Iterator[Row]:
        """The rows that the end of a request makes: none if it was stopped, or the prompt is to run once more."""
        sent = self._sent.pop(ended.request.number)
        planned, event = sent.planned, ended.event
        if sent.row is not None:  # the same prompt from nothing: nothing hangs on what became of it
            row = sent.row
            if isinstance(event, TurnDone) and event.finish_reason != "interrupted":
                row = replace(row, baseline=event.stats)
            yield row
        elif isinstance(event, TurnFailed) and not isinstance(event.error, ContextExceeded):
            yield from self._failed(planned, event.error, ended, lanes)
            return
        elif isinstance(event, TurnFailed):
            yield Row(planned, "skipped_too_long", _unrun(planned))
        elif event.finish_reason != "interrupted":
            row = self._row(planned, event, ended, lanes)
            if planned.job.number in self._compare and not self.stopped:
                self._ask(_Sent(planned, row), self._options(planned, 1), None, uncached=True)
                return
            yield row
        lanes.ended(planned, self._clock.now())

    def _row(self, planned: Planned, done: TurnDone, ended: Ended, lanes: Lanes) -> Row:
        done.stats.turn = planned.job.turn
        started, end = self._clock.at(ended.sent), self._clock.at(ended.ended)
        admitted = started if ended.prefilling is None else self._clock.at(ended.prefilling)
        ready = lanes.ready_at(planned.job.lane)
        return Row(
            planned, "run", done.stats, started_s=started, ended_s=end, ready_s=ready, admitted_s=min(admitted, end)
        )

    def _failed(self, planned: Planned, error: MlxchatError, ended: Ended, lanes: Lanes) -> Iterator[Row]:
        """The row of a request that failed, and those of its lane that will not run."""
        if lanes.count == 1:
            raise error
        if isinstance(error, EngineFailed):
            self._engine.ensure_running()  # the other lanes fail of it too: that ends the run
        started, end = self._clock.at(ended.sent), self._clock.at(ended.ended)
        yield Row(planned, "failed", _unrun(planned), started_s=started, ended_s=end, failure=error.message)
        for lost in lanes.give_up(planned):
            why = f"request {planned.job.number} before it failed"
            yield Row(lost, "failed", _unrun(lost), failure=why)

    def _options(self, planned: Planned, longest: int) -> RequestOptions:
        settings = self._settings
        sampling = replace(settings.sampling, max_tokens=longest)
        return RequestOptions(sampling, settings.thinking, planned.job.tools, max_context=settings.max_context)

    def _reply_ids(self, job: Job) -> tuple[int, ...] | None:
        """The ids of an answer that is not rendered; none at all where the file ends before it."""
        if job.hash_ids:
            return self._prompts.synthetic.reply(job)
        return () if job.answer is None else None

    def _planner_of(self, machinery: Machinery) -> Planner:
        layout, settings = machinery.loop.reuse.layout, self._settings
        padding = padding_of(self._prompts) if settings.pad else None
        recurrent = layout is not None and layout.states is not None
        live = settings.generate is not None
        return Planner(self._prompts, self.limit, recurrent=recurrent, padding=padding, live=live)

    def _on_engine(self, work: Any) -> Any:
        return self._engine.call(work)


def prompts_of(machinery: Machinery, settings: Settings) -> Prompts:
    """The engine's own renderer, on the day that its conversations name."""
    today = date.today().isoformat()
    return Prompts(machinery.renderer, machinery.model.tokenizer, settings.thinking, today)


def spread(numbers: Sequence[int], count: int | None) -> frozenset[int]:
    """`count` of the numbers, evenly spread, the first and the last among them; all of them for None."""
    if count is None or count >= len(numbers):
        return frozenset(numbers)
    if count == 1:
        return frozenset(numbers[-1:])
    last = len(numbers) - 1
    return frozenset(numbers[round(i * last / (count - 1))] for i in range(count))


def _unrun(planned: Planned) -> RequestStats:
    return RequestStats(
        turn=planned.job.turn, prompt_tokens=planned.prompt_tokens, common_prefix_tokens=planned.common_prefix_tokens
    )


def _disk(machinery: Machinery) -> Disk:
    if machinery.store is None:
        return Disk()
    machinery.store.drain(_PATIENCE_S)
    stats = machinery.store.stats()
    return Disk(
        stats.bytes_written, stats.bytes_read, stats.file_bytes_peak, stats.evictions, sum(stats.dropped.values())
    )
