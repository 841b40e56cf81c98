"""Where a replay goes: a table for people, or JSON for programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MlxchatError
from ..transcripts.heading import Coming, Share
from ..transcripts.rows import Result, Row
from ..transcripts.together import Unread
from .json_output import error_object
from .replay_words import Subject


@dataclass(frozen=True)
class Opening:
    """All that is known before the first request. `compared`: how many run uncached too; `planned`: nothing runs.

    parallel   how many conversations may run side by side; unread: transcripts that can't be replayed
    """

    subject: Subject
    share: Share
    coming: Coming
    compared: int = 0
    planned: bool = False
    parallel: int = 1
    unread: Sequence[Unread] = ()

    @property
    def conversations(self) -> list[str]:
        """Their ids, in the order of their first requests."""
        return list(dict.fromkeys(job.conversation for job in self.subject.jobs))

    @property
    def recorded(self) -> bool:
        """Whether the file says what the provider had cached."""
        return any(job.usage.cached_tokens is not None for job in self.subject.jobs)


class ReplayOutput(ABC):
    """Told of a replay's steps in this order."""

    def planning(self, done: int, total: int) -> None:  # noqa: B027 - most outputs have nothing to say here
        """`done` of `total` requests are rendered."""

    @abstractmethod
    def begin(self, opening: Opening) -> None:
        """The plan is made, the first request comes."""

    @abstractmethod
    def row(self, row: Row) -> None:
        """A request ended."""

    def notice(self, line: str) -> None:  # noqa: B027 - programs are told what it cost, in the rows
        """The engine has a line for the user."""

    @abstractmethod
    def end(self, result: Result, exit_code: int) -> None:
        """The last request ended, or Ctrl-C ended the run before it."""

    @abstractmethod
    def failed(self, error: MlxchatError) -> None:
        """The run ends with `error`, and nothing comes after it. After `end` only stderr still tells."""


def replay_object(opening: Opening, result: Result, versions: dict[str, str]) -> dict[str, Any]:
    """The run as `mlxchat.replay/1`, or as `mlxchat.replay-plan/1` where nothing ran."""
    subject = opening.subject
    out: dict[str, Any] = {
        "schema": "mlxchat.replay-plan/1" if opening.planned else "mlxchat.replay/1",
        "transcript": subject.transcript.path,
        "format": subject.transcript.format,
        "model": subject.model,
        "adapter": subject.adapter,
        "missing": missing_object(opening.share),
        "skipped_lines": len(subject.transcript.skipped),
        "transcripts": transcripts_object(opening),
    }
    if opening.planned:
        return {**out, "turns": [plan_turn(row) for row in result.rows], "summary": plan_summary(opening, result)}
    out |= {"turns": [row.to_json() for row in result.rows], "summary": result.summary()}
    baseline = result.baseline()
    if baseline is not None:
        out["baseline"] = baseline
    return {**out, "versions": versions}


def transcripts_object(opening: Opening) -> list[dict[str, Any]]:
    """Each transcript by itself; `error` of one that was left out."""
    whole = opening.subject.transcript
    out: list[dict[str, Any]] = [
        {"transcript": one.path, "format": one.format, "skipped_lines": len(one.skipped), "error": None}
        for one in whole.parts or (whole,)
    ]
    for one in opening.unread:
        error = error_object(one.error)
        out.append({"transcript": one.path, "format": None, "skipped_lines": 0, "error": error})
    return out


def missing_object(share: Share) -> dict[str, Any]:
    """What the file leaves out, and how much of the recorded prompts it has (0 to 1, null where unknown)."""
    present = None if share.percent is None else share.percent / 100
    return {"parts": list(share.missing), "present_share": present}


_PLAN_NUMBERS = ("turn", "prompt_tokens", "common_prefix_tokens", "divergence")
_ROW_NUMBERS = (
    *("conversation", "request", "line", "kind", "outcome", "reason", "recorded_prompt_tokens"),
    *("recorded_cached_tokens", "padded_tokens", "mismatched_tokens", "ideal_cached_tokens"),
)


def plan_turn(row: Row) -> dict[str, Any]:
    """One request of a plan; `ttft_ms` is null without a rate."""
    whole = row.to_json()
    out = {name: whole[name] for name in (*_PLAN_NUMBERS, *_ROW_NUMBERS)}
    out["prefill_tokens"] = row.stats.prefill_tokens
    out["answer_tokens"] = row.planned.answer_tokens
    out["ttft_ms"] = row.stats.ttft_ms or None
    return out


def plan_summary(opening: Opening, result: Result) -> dict[str, Any]:
    """The sums of a plan."""
    totals = result.totals
    return {
        "turns": totals.turns,
        "skipped": len(result.rows) - totals.turns,
        "prompt_tokens": totals.prompt_tokens,
        "ideal_cached_tokens": totals.cached_tokens,
        "prefill_tokens": totals.prefill_tokens,
        "hit_rate": totals.hit_rate,
        "seconds": opening.coming.seconds,
    }
