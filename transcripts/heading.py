"""What is said before a replay: what was read, what it lacks, what was added, and what it will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .jobs import Job
from .model import Transcript
from .planned import Planned


@dataclass(frozen=True)
class Coming:
    """What a run will take, by its plan. `seconds` None: no rate is known."""

    requests: int
    fit: int
    prompt_tokens: int
    prefill_tokens: int
    answer_tokens: int
    seconds: float | None

    @classmethod
    def of(cls, planned: Sequence[Planned], rate: float | None, compared: frozenset[int] = frozenset()) -> Coming:
        """Restoring and writing taken as free; `compared` requests are prefilled whole once more."""
        runs = [one for one in planned if one.outcome == "run"]
        new = sum(one.new_tokens for one in runs)
        twice = sum(one.prompt_tokens for one in runs if one.job.number in compared)
        fed = sum(one.answer_tokens for one in runs)
        seconds = None if not rate else (new + twice + fed) / rate
        return cls(len(planned), len(runs), sum(one.prompt_tokens for one in runs), new, fed, seconds)


@dataclass(frozen=True)
class Share:
    """How much of the recorded prompts is in the file, in tokens; what is not, in phrases."""

    rendered_tokens: int
    recorded_tokens: int
    missing: tuple[str, ...]

    @classmethod
    def of(cls, planned: Sequence[Planned], missing: Sequence[str]) -> Share:
        """Over the requests whose length was recorded; synthetic tokens don't count as in the file."""
        known = [one for one in planned if one.job.usage.prompt_tokens and one.outcome != "no_request"]
        rendered = sum(one.prompt_tokens - one.padded_tokens for one in known)
        return cls(rendered, sum(one.job.usage.prompt_tokens or 0 for one in known), tuple(missing))

    @property
    def percent(self) -> float | None:
        """None where nothing was recorded."""
        return 100 * self.rendered_tokens / self.recorded_tokens if self.recorded_tokens else None


def skipped_lines(transcript: Transcript) -> list[tuple[str, int, int]]:
    """(why, how many lines, the first of them) of what couldn't be read, the most frequent first."""
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for skipped in transcript.skipped:
        counts[skipped.why] += 1
        first.setdefault(skipped.why, skipped.line)
    return [(why, count, first[why]) for why, count in counts.most_common()]


def images_in(jobs: Sequence[Job]) -> int:
    """Pictures that a text stands for, each once a conversation."""
    most: dict[str, int] = {}
    for job in jobs:
        most[job.conversation] = max(most.get(job.conversation, 0), job.images)
    return sum(most.values())
