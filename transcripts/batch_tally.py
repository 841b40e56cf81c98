"""What a batch amounts to: counts, tokens and time, what failed, and what was passed over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..engine.stats import rate
from .batch_answers import failure_of
from .batch_lines import BatchLine
from .standing import Standing

if TYPE_CHECKING:
    from .batch import Outcome

MOST_ERRORS = 100


@dataclass(frozen=True)
class Failure:
    """A line that has no answer, and why."""

    line: int
    custom_id: str | None
    code: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {"line": self.line, "custom_id": self.custom_id, "code": self.code, "message": self.message}


@dataclass
class Tally:
    """Counts of one run. `model`: what answers; requests that name another are counted by that name.

    before, failed_before   lines that the answer file had already; those of them that are no answers
    changed                 lines of requests answered before that were others then
    """

    model: str = ""
    adapter: str | None = None
    lines: int = 0
    before: int = 0
    failed_before: int = 0
    changed: int = 0
    retried: int = 0
    trimmed_bytes: int = 0
    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    completion_tokens: int = 0
    wall_s: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    _ignored: Counter[str] = field(default_factory=Counter)
    _models: Counter[str] = field(default_factory=Counter)

    def pending(self, lines: list[BatchLine], standing: Standing) -> list[BatchLine]:
        """The lines that have nothing in the answer file yet; the others are counted."""
        left = []
        for line in lines:
            known = line.id if line.id in standing.lines else None
            if line.fault is None and line.custom_id is not None:
                known = standing.requests.get(line.custom_id)
            if known is None:
                left.append(line)
                continue
            self.before += 1
            self.failed_before += known in standing.failed
            self.changed += known != line.id and line.fault is None
        self.lines = len(lines)
        self.trimmed_bytes = standing.trimmed
        return left

    def add(self, outcome: Outcome) -> None:
        """Count what came of a line."""
        line = outcome.line
        self._ignored.update(line.unknown)
        if outcome.asked is not None:
            self._ignored.update(f"body.{name}" for name in outcome.asked.ignored)
            if outcome.asked.model not in (None, self.model):
                self._models[str(outcome.asked.model)] += 1
        failure = failure_of(outcome.value)
        if failure is None:
            self.answered += 1
        else:
            self.failed += 1
            if len(self.failures) < MOST_ERRORS:
                self.failures.append(Failure(line.number, line.custom_id, *failure))
        if outcome.stats is not None:
            self.prompt_tokens += outcome.stats.prompt_tokens
            self.cached_tokens += outcome.stats.cached_tokens
            self.prefill_tokens += outcome.stats.prefill_tokens
            self.completion_tokens += outcome.stats.completion_tokens

    @property
    def left(self) -> int:
        """Lines that have nothing in the answer file."""
        return self.lines - self.before - self.answered - self.failed

    @property
    def any_failed(self) -> bool:
        """Whether a line, of this run or an earlier one, has no answer but an error."""
        return bool(self.failed or self.failed_before)

    @property
    def hit_rate(self) -> float | None:
        """Cached tokens by prompt tokens; None if there were none."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens by the run's time."""
        return rate(self.completion_tokens, 1000 * self.wall_s)

    def warnings(self) -> list[str]:
        """What was passed over, a line each."""
        said = [
            f"{name} has no meaning here and was ignored in {_requests(count)}"
            for name, count in sorted(self._ignored.items())
        ]
        said += [
            f"{_requests(count)} asked for the model {name}; {self.model} answered"
            for name, count in self._models.most_common()
        ]
        if self.changed:
            said.append(f"{_requests(self.changed)} answered before had other words then, and were not run again")
        if self.trimmed_bytes:
            said.append(f"the last line of the answers was cut off ({self.trimmed_bytes} bytes); its request ran again")
        return said

    def to_json(self) -> dict[str, Any]:
        """The `summary` object."""
        return {
            "requests": self.lines,
            "answered": self.answered,
            "failed": self.failed,
            "before": self.before,
            "failed_before": self.failed_before,
            "left": self.left,
            "retried": self.retried,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "prefill_tokens": self.prefill_tokens,
            "completion_tokens": self.completion_tokens,
            "hit_rate": self.hit_rate,
            "wall_s": self.wall_s,
            "tokens_per_s": self.tokens_per_s,
        }


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"
