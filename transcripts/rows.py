"""What came of each request of a replay, and of all of them: the numbers of `mlxchat.replay/1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.stats import RequestStats, rate
from .planned import Outcome, Planned


@dataclass(frozen=True)
class Row:
    """One request as it ended. `baseline`: the same prompt from nothing. Seconds count from the run's begin.

    failure       what ended it or kept it from running, "" if nothing
    ready_s       when the request before it in its conversation had ended and its tools were done
    started_s     when it was sent; admitted_s: when the engine took it up, its restore being over
    """

    planned: Planned
    outcome: Outcome
    stats: RequestStats
    baseline: RequestStats | None = None
    started_s: float = 0.0
    ended_s: float = 0.0
    ready_s: float = 0.0
    admitted_s: float = 0.0
    failure: str = ""

    @property
    def why(self) -> str:
        """What kept it from running, "" if nothing."""
        return self.failure or self.planned.why

    @property
    def prefill_from_s(self) -> float:
        """When its own work began: the restore, then the prefill."""
        return max(self.started_s, self.admitted_s - self.stats.restore_ms / 1000)

    @property
    def first_token_s(self) -> float:
        """When its prompt was prefilled."""
        return min(self.ended_s, self.started_s + self.stats.ttft_ms / 1000)

    def to_json(self) -> dict[str, Any]:
        """The turn's object."""
        job = self.planned.job
        return {
            **self.stats.to_json(),
            "conversation": job.conversation,
            "request": job.number,
            "line": job.line,
            "kind": job.kind,
            "outcome": self.outcome,
            "reason": self.why,
            "recorded_prompt_tokens": job.usage.prompt_tokens,
            "recorded_cached_tokens": job.usage.cached_tokens,
            "padded_tokens": self.planned.padded_tokens,
            "mismatched_tokens": self.planned.mismatched_tokens,
            "ideal_cached_tokens": self.planned.ideal_tokens,
            "baseline_ttft_ms": None if self.baseline is None else self.baseline.ttft_ms,
            "baseline_prefill_ms": None if self.baseline is None else self.baseline.prefill_ms,
            "transcript": job.transcript,
            "delay_ms": job.delay_ms,
            "ready_s": self.ready_s,
            "started_s": self.started_s,
            "prefill_from_s": self.prefill_from_s,
            "first_token_s": self.first_token_s,
            "ended_s": self.ended_s,
        }


@dataclass(frozen=True)
class Disk:
    """The scratch file: bytes moved, its length at its longest, records evicted and records not kept."""

    bytes_written: int = 0
    bytes_read: int = 0
    file_bytes_peak: int = 0
    evictions: int = 0
    dropped: int = 0

    def since(self, before: Disk) -> Disk:
        """The counts after `before`; the peak stays."""
        return Disk(
            self.bytes_written - before.bytes_written,
            self.bytes_read - before.bytes_read,
            self.file_bytes_peak,
            self.evictions - before.evictions,
            self.dropped - before.dropped,
        )


@dataclass(frozen=True)
class Totals:
    """Sums over the requests that ran. Rates are None where nothing could have been reused or sent."""

    turns: int
    prompt_tokens: int
    cached_tokens: int
    prefill_tokens: int
    common_prefix_tokens: int
    ttft_ms: dict[str, float]
    prefill_s: float
    decode_s: float
    completion_tokens: int = 0

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Totals:
        """The totals of these rows; those that didn't run count for nothing."""
        ran = [row.stats for row in rows if row.outcome == "run"]
        return cls(
            turns=len(ran),
            prompt_tokens=sum(stats.prompt_tokens for stats in ran),
            cached_tokens=sum(stats.cached_tokens for stats in ran),
            prefill_tokens=sum(stats.prefill_tokens for stats in ran),
            common_prefix_tokens=sum(stats.common_prefix_tokens for stats in ran),
            ttft_ms=percentiles([stats.ttft_ms for stats in ran]),
            prefill_s=sum(stats.prefill_ms for stats in ran) / 1000,
            decode_s=sum(stats.decode_ms for stats in ran) / 1000,
            completion_tokens=sum(stats.completion_tokens for stats in ran),
        )

    @property
    def hit_rate(self) -> float | None:
        """Cached tokens by prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def efficiency(self) -> float | None:
        """Cached tokens by what was fed before; None if nothing was."""
        return self.cached_tokens / self.common_prefix_tokens if self.common_prefix_tokens else None


@dataclass(frozen=True)
class Result:
    """A whole replay, or as much of it as ran. `parallel`: how many conversations might run side by side."""

    rows: tuple[Row, ...]
    wall_s: float
    disk: Disk
    after_bytes: int
    parallel: int = 1

    @property
    def totals(self) -> Totals:
        """Over all rows."""
        return Totals.of(self.rows)

    def summary(self) -> dict[str, Any]:
        """The `summary` object."""
        totals = self.totals
        return {
            "turns": totals.turns,
            "skipped": sum(row.outcome != "run" for row in self.rows),
            "prompt_tokens": totals.prompt_tokens,
            "cached_tokens": totals.cached_tokens,
            "prefill_tokens": totals.prefill_tokens,
            "common_prefix_tokens": totals.common_prefix_tokens,
            "hit_rate": totals.hit_rate,
            "efficiency": totals.efficiency,
            "ttft_ms": totals.ttft_ms,
            "prefill_s": totals.prefill_s,
            "decode_s": totals.decode_s,
            "wall_s": self.wall_s,
            "mismatched_tokens": sum(row.planned.mismatched_tokens for row in self.rows),
            "disk": {
                "bytes_written": self.disk.bytes_written,
                "bytes_read": self.disk.bytes_read,
                "file_bytes_peak": self.disk.file_bytes_peak,
                "evictions": self.disk.evictions,
                "dropped": self.disk.dropped,
            },
            "memory": {"peak_bytes": self.peak_bytes, "after_bytes": self.after_bytes},
            "failed": self.failed,
            "parallel": self.parallel,
            "at_once": self.at_once,
            "completion_tokens": totals.completion_tokens,
            "tokens_per_s": self.tokens_per_s,
        }

    @property
    def failed(self) -> int:
        """Requests that failed, or did not run because one before them had."""
        return sum(row.outcome == "failed" for row in self.rows)

    @property
    def at_once(self) -> float:
        """How many requests the engine worked on at a time, on the average."""
        worked = sum(row.ended_s - row.prefill_from_s for row in self.rows if row.outcome == "run")
        return worked / self.wall_s if self.wall_s else 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that were prefilled and fed or sampled, by the run's time; None if requests ran uncached meanwhile."""
        if any(row.baseline is not None for row in self.rows):
            return None
        totals = self.totals
        return rate(totals.prefill_tokens + totals.completion_tokens, 1000 * self.wall_s)

    @property
    def peak_bytes(self) -> int:
        """The most memory that any cached request took."""
        return max((row.stats.peak_memory_bytes for row in self.rows), default=0)

    def baseline(self) -> dict[str, Any] | None:
        """The `baseline` object: the paired uncached runs, and how many times longer their first tokens took."""
        pairs = [(row.stats, row.baseline) for row in self.rows if row.baseline is not None]
        if not pairs:
            return None
        cached, uncached = (sum(pair[i].ttft_ms for pair in pairs) for i in (0, 1))
        return {
            "requests": len(pairs),
            "ttft_ms": percentiles([other.ttft_ms for _, other in pairs]),
            "prefill_s": sum(other.prefill_ms for _, other in pairs) / 1000,
            "ratio": uncached / cached if cached else None,
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile; 0 without values."""
    if not values:
        return {"p50": 0.0, "p95": 0.0}
    p50, p95 = np.percentile(np.array(values, float), [50, 95])
    return {"p50": float(p50), "p95": float(p95)}


def by_conversation(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each conversation, in the order in which conversations began."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.planned.job.conversation, []).append(row)
    return groups
