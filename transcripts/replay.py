"""Runs the requests of a transcript on an engine, one after the other, and says what each of them cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
from ..errors import ContextExceeded
from .jobs import Job
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


class Replay:
    """A run over one engine. `stop` may be called from a signal handler; `stopped` then says so."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._running: Request | None = None
        self._clock = _Clock()
        self.stopped = False
        self.info = engine.info
        self.limit = min(engine.info.context_limit, settings.max_context or engine.info.context_limit)
        self._prompts: Prompts = self._on_engine(lambda machinery: prompts_of(machinery, settings))
        self._planner: Planner = self._on_engine(lambda machinery: self._planner_of(machinery))
        self._before = self.disk()

    def stop(self) -> None:
        """End the running request between two model calls, and start no other."""
        self.stopped = True
        if self._running is not None:
            self._running.cancelled.set()

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

        Raises what ended a request that should have run.
        """
        self._clock = _Clock()
        for one in planned:
            if self.stopped:
                return
            row = self._run_one(one)
            if row is not None:
                yield self._compared(row) if row.outcome == "run" and one.job.number in compare else row

    def seconds(self) -> float:
        """Since the run began."""
        return self._clock.now()

    def disk(self) -> Disk:
        """What the scratch file has seen since this replay began."""
        disk: Disk = self._on_engine(_disk)
        return disk.since(self._before) if hasattr(self, "_before") else disk

    def memory(self) -> int:
        """Bytes that MLX holds now."""
        held: int = self._on_engine(lambda machinery: active_bytes())
        return held

    # -- one request -------------------------------------------------------------------------------------------

    def _run_one(self, planned: Planned) -> Row | None:
        """Its row; None if it was stopped before its end."""
        if planned.outcome != "run":
            return Row(planned, planned.outcome, _unrun(planned))
        settings, job = self._settings, planned.job
        recorded = None
        if settings.generate is None:
            recorded = Recorded(job.answer or assistant(""), settings.feed, self._reply_ids(job))
        longest = settings.generate if settings.generate is not None else 1
        started = self._clock.now()
        done = self._ask(planned, self._options(planned, longest), recorded)
        if done is None:
            return None
        if isinstance(done, ContextExceeded):
            return Row(planned, "skipped_too_long", _unrun(planned))
        done.stats.turn = planned.job.turn
        return Row(planned, "run", done.stats, started_s=started, ended_s=self._clock.now())

    def _compared(self, row: Row) -> Row:
        """The same prompt once more, from nothing, up to its first token; as it is if that was stopped."""
        done = self._ask(row.planned, self._options(row.planned, 1), None, uncached=True)
        return replace(row, baseline=done.stats) if isinstance(done, TurnDone) else row

    def _options(self, planned: Planned, longest: int) -> RequestOptions:
        settings = self._settings
        sampling = replace(settings.sampling, max_tokens=longest)
        return RequestOptions(sampling, settings.thinking, planned.job.tools, max_context=settings.max_context)

    def _ask(
        self, planned: Planned, options: RequestOptions, recorded: Recorded | None, uncached: bool = False
    ) -> TurnDone | ContextExceeded | None:
        job = planned.job
        ids = self._prompts.synthetic.prompt(job) if job.hash_ids else None
        request = Request(
            next_number(), job.conversation, job.messages, options, recorded=recorded, ids=ids, uncached=uncached
        )
        self._running = request
        if self.stopped:  # between the last look and now
            return None
        self._engine.submit(request)
        try:
            while True:
                event = request.events.get()
                if isinstance(event, TurnDone):
                    return None if event.finish_reason == "interrupted" else event
                if isinstance(event, TurnFailed):
                    if isinstance(event.error, ContextExceeded):
                        return event.error
                    raise event.error
        finally:
            self._running = None

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
