"""What each conversation of a replay did when: its tools, waiting, prefill, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .rows import Row

PhaseKind = Literal["tools", "waiting", "prefill", "answer"]

_NOTHING_S = 0.001


@dataclass(frozen=True)
class Phase:
    """A stretch of a conversation's time, in seconds since the run began.

    tools     the pause after a request, with --real-time
    waiting   the next request could begin, and others had the engine
    prefill   its restore and the calls over its prompt; answer: feeding or sampling it
    """

    conversation: str
    kind: PhaseKind
    start_s: float
    end_s: float


def phases(rows: Sequence[Row]) -> list[Phase]:
    """The phases of the requests that ran, those of no length left out."""
    found: list[Phase] = []
    last: dict[str, Row] = {}
    for row in sorted((row for row in rows if row.outcome == "run"), key=lambda row: row.started_s):
        job, before = row.planned.job, last.get(row.planned.job.lane)
        last[job.lane] = row
        if before is not None and before.baseline is None:  # else that was the run without the cache
            found.append(Phase(before.planned.job.conversation, "tools", before.ended_s, row.ready_s))
        found.append(Phase(job.conversation, "waiting", row.ready_s, row.prefill_from_s))
        found.append(Phase(job.conversation, "prefill", row.prefill_from_s, row.first_token_s))
        found.append(Phase(job.conversation, "answer", row.first_token_s, row.ended_s))
    return [phase for phase in found if phase.end_s - phase.start_s > _NOTHING_S]
