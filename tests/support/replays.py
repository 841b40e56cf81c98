"""Replays on small models in this process, held against the call log; and rows made by hand for what shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxchat.engine.engine import Engine
from mlxchat.engine.options import CacheOptions, EngineOptions
from mlxchat.engine.stats import RequestStats
from mlxchat.transcripts.jobs import Job, Supplied, jobs_of
from mlxchat.transcripts.model import Conversation, Request, Transcript, Usage
from mlxchat.transcripts.planned import Difference, Planned
from mlxchat.transcripts.replay import Replay
from mlxchat.transcripts.rows import Disk, Result, Row
from mlxchat.transcripts.settings import Settings

from .oracle import Fed, common, read_log

GB = 10**9


@dataclass(frozen=True)
class Ran:
    """A replay that is over: its plan, its rows, and what was fed."""

    planned: list[Planned]
    rows: list[Row]
    log: list[Fed]

    @property
    def ran(self) -> list[Row]:
        return [row for row in self.rows if row.outcome == "run"]


def run(
    model: Path,
    work: Path,
    transcript: Transcript,
    settings: Settings | None = None,
    *,
    supplied: Supplied | None = None,
    template: str | None = None,
    compare: bool = False,
    limit: int | None = None,
    cache: CacheOptions | None = None,
) -> Ran:
    """Replay on a new engine; its books are checked after every request."""
    work.mkdir(parents=True, exist_ok=True)
    log = work / "calls.jsonl"
    os.environ["MLXCHAT_TEST_CALL_LOG"] = str(log)
    try:
        cache = cache or CacheOptions(directory=work / "kv", budget_bytes=1 << 30)
        parallel = 1 if settings is None else settings.parallel
        options = EngineOptions(model=str(model), template=template, offline=True, cache=cache, parallel=parallel)
        engine = Engine.start(options, print)
    finally:
        del os.environ["MLXCHAT_TEST_CALL_LOG"]
    try:
        replay = Replay(engine, settings or Settings())
        planned = list(replay.plan(jobs_of(transcript, supplied or Supplied(), limit, pictures=engine.info.vision)))
        numbers = frozenset(one.job.number for one in planned) if compare else frozenset[int]()
        rows = []
        for row in replay.run(planned, numbers):
            rows.append(row)
            engine.call(_check)
        return Ran(planned, rows, read_log(log))
    finally:
        engine.close()


def _check(machinery: Any) -> None:
    if machinery.store is not None:
        machinery.store.check()
    machinery.loop.reuse.trie.check()
    for sequence in machinery.loop.sequences.values():
        if sequence.live is not None:
            sequence.live.check()


def oracle_prefixes(ran: Ran) -> list[tuple[int, int]]:
    """For each request that ran: (the program's common prefix, the longest with all fed earlier by the call log)."""
    ours = [row.stats.common_prefix_tokens for row in ran.ran]
    return list(zip(ours, oracle_of(ran.log, [row.stats.prompt_tokens for row in ran.ran]), strict=True))


def oracle_of(log: list[Fed], prompt_tokens: Sequence[int]) -> list[int]:
    """For each request its longest common prefix with everything that was fed before it, by the call log alone."""
    assert len(log) == len(prompt_tokens), "a request in the log for each that ran"
    fed = [one.ids for one in log]
    prompts = [ids[:tokens] for ids, tokens in zip(fed, prompt_tokens, strict=True)]
    return [max((common(prompt, other) for other in fed[:at]), default=0) for at, prompt in enumerate(prompts)]


# -- by hand --------------------------------------------------------------------------------------------------------

SCRIPT = "<script>alert(1)</script>"
ANSI = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m"
HOSTILE = f"{SCRIPT} & {ANSI}"


_JOB_FIELDS = ("title", "kind", "parent", "turn", "line", "usage", "lane", "delay_ms")


def row(number: int, conversation: str = "fix", **changes: Any) -> Row:
    """One request that ran; `changes` to its stats, or by name: title, kind, parent, outcome, why, baseline_ms, …"""
    job_fields = {k: changes.pop(k) for k in _JOB_FIELDS if k in changes}
    plan_fields = {
        k: changes.pop(k) for k in ("again_tokens", "padded_tokens", "difference", "mismatched_tokens") if k in changes
    }
    plan_fields |= {k: changes.pop(k) for k in ("tools_changed", "scaffold_lost", "ideal_tokens") if k in changes}
    times = {k: changes.pop(k) for k in ("ready_s", "started_s", "admitted_s", "ended_s") if k in changes}
    outcome, why = changes.pop("outcome", "run"), changes.pop("why", "")
    baseline_ms = changes.pop("baseline_ms", None)
    defaults: dict[str, Any] = {
        "prompt_tokens": 1000 + 100 * number,
        "common_prefix_tokens": 900 + 100 * number,
        "cached_tokens": 900 + 100 * number,
        "cached_live_tokens": 900 + 100 * number,
        "prefill_tokens": 100,
        "ttft_ms": 400.0 + number,
        "prefill_ms": 390.0,
        "decode_ms": 50.0,
        "completion_tokens": 40,
        "checkpoint_bytes": 5 << 20,
        "restore_kind": "live",
        "divergence": "append",
        "peak_memory_bytes": GB,
    }
    stats = RequestStats(**{**defaults, **changes})
    fields: dict[str, Any] = {"kind": "main", "turn": number, "line": number, "lane": conversation, **job_fields}
    job = Job(number, conversation, messages=(), answer=None, **fields)
    plan = {"ideal_tokens": stats.cached_tokens, "divergence": stats.divergence, **plan_fields}
    planned = Planned(job, outcome, why, stats.prompt_tokens, 40, stats.common_prefix_tokens, **plan)
    baseline = None if baseline_ms is None else RequestStats(ttft_ms=baseline_ms, prefill_ms=baseline_ms - 10)
    times = {"started_s": number - 1.0, "ended_s": number - 0.4, **times}
    return Row(planned, outcome, stats, baseline, **times)


def rows() -> list[Row]:
    """Two conversations, every kind of thing that a table may have to show."""
    recorded = Usage(prompt_tokens=2000, cached_tokens=1500)
    return [
        row(
            1,
            divergence="first",
            cached_tokens=0,
            cached_live_tokens=0,
            prefill_tokens=1100,
            restore_kind="none",
            common_prefix_tokens=0,
            ttft_ms=4321.0,
            baseline_ms=4400.0,
            ideal_tokens=0,
        ),
        row(2, baseline_ms=4500.0, usage=recorded, padded_tokens=300),
        row(
            3,
            "title",
            kind="side",
            parent="fix",
            title=HOSTILE,
            divergence="first",
            turn=1,
            baseline_ms=900.0,
            cached_tokens=256,
            cached_disk_tokens=256,
            cached_live_tokens=0,
            restore_kind="block",
            prefill_tokens=1044,
            restore_bytes=3 << 20,
        ),
        row(
            4,
            baseline_ms=4700.0,
            divergence="reasoning_dropped",
            rewind_tokens=321,
            restore_kind="anchor",
            cached_disk_tokens=512,
            cached_live_tokens=788,
            again_tokens=77,
            difference=Difference(1250, f"{HOSTILE}", "now"),
        ),
        row(5, outcome="skipped_too_long", why="9,001 tokens, the context is 8,192", prompt_tokens=9001),
        row(
            6,
            "title",
            kind="side",
            parent="fix",
            title=HOSTILE,
            turn=2,
            shortfall_reason="evicted",
            divergence="history_edited",
            cached_tokens=0,
            cached_live_tokens=0,
            prefill_tokens=1600,
            restore_kind="none",
            again_tokens=500,
            ideal_tokens=800,
            difference=Difference(12, None, "\n"),
        ),
        row(7, outcome="no_request", why="there is nothing before the answer", prompt_tokens=0),
    ]


def result(made: Sequence[Row] | None = None) -> Result:
    return Result(tuple(made or rows()), 12.5, Disk(123 << 20, 45 << 20, 150 << 20, 2, 1), 800_000_000)


def transcript(*requests: Request, conversation: str = "fix", **more: Any) -> Transcript:
    """One conversation of these requests."""
    return Transcript("openai", "trace.jsonl", (Conversation(conversation, tuple(requests)),), **more)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
