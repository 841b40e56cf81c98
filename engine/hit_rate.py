"""How much of what could be reused was, over the process; and one warning when that falls, with the reason.

A turn's *reusable* tokens are those that its conversation, or any other, had fed before and that an untouched
conversation would have met again. What the user changed on purpose (an edit, a new conversation) was never reusable.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .stats import Divergence, RequestStats, ShortfallReason

WINDOW_TURNS: Final = 10
LOWEST_RATE: Final = 0.8

MissReason = Literal[
    "evicted",
    "budget",
    "no_anchor",
    "unsupported_class",
    "image",
    "io_error",
    "memory",
    "off",
    "retokenized",
    "system_changed",
    "tools_changed",
    "template_changed",
    "other",
]

_DIAGNOSES: Final[dict[str, str]] = {
    "evicted": "older checkpoints made room for newer ones; a larger --cache-bytes keeps them",
    "budget": "--cache-bytes is too small for this conversation",
    "no_anchor": "prompts part from what was fed before between two checkpoints",
    "image": "prompts part from what was fed before inside an image",
    "io_error": "the cache's disk fails; --cache-dir puts it elsewhere",
    "memory": "there is not enough memory to restore into",
    "retokenized": "the template writes earlier answers in other tokens than were generated",
    "system_changed": "the system prompt changes between turns",
    "tools_changed": "the tools change between turns",
    "template_changed": "the template renders the beginning anew each turn, or thinking is switched on and off",
    "other": "prompts change near their beginning",
}
_CHOSEN: Final = frozenset({"off", "unsupported_class"})  # told once, when the model was loaded


@dataclass(frozen=True)
class TurnReuse:
    """One turn: tokens of its prompt, those that could have been reused, those that were, why not more."""

    prompt: int
    reusable: int
    cached: int
    reason: MissReason | None

    @property
    def missed(self) -> int:
        """Reusable tokens that were prefilled again."""
        return max(0, self.reusable - self.cached)


@dataclass
class HitRate:
    """Every turn of the process. Tokens are counts; `missed` has those prefilled again, by reason."""

    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reusable_tokens: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    _recent: deque[TurnReuse] = field(default_factory=lambda: deque(maxlen=WINDOW_TURNS))
    _warned: bool = False

    def add(self, turn: TurnReuse) -> str | None:
        """Count a turn; a warning, once, when the rate over the last ten turns has fallen under 80 %."""
        self.turns += 1
        self.prompt_tokens += turn.prompt
        self.cached_tokens += turn.cached
        self.reusable_tokens += turn.reusable
        if turn.reason is not None and turn.missed:
            self.missed[turn.reason] += turn.missed
        self._recent.append(turn)
        return self._warning()

    @property
    def recent_rate(self) -> float | None:
        """Of the reusable tokens of the last ten turns, the share that was reused; None if there were none."""
        reusable = sum(turn.reusable for turn in self._recent)
        return 1 - sum(turn.missed for turn in self._recent) / reusable if reusable else None

    def _warning(self) -> str | None:
        rate = self.recent_rate
        if self._warned or rate is None or len(self._recent) < WINDOW_TURNS or rate >= LOWEST_RATE:
            return None
        reasons: Counter[str] = Counter()
        for turn in self._recent:
            reasons[turn.reason or "other"] += turn.missed
        reason = reasons.most_common(1)[0][0]
        if reason in _CHOSEN:
            return None
        self._warned = True
        what = f"only {rate:.0%} of the reusable tokens of the last {WINDOW_TURNS} turns was reused"
        return f"{what}: {_DIAGNOSES[reason]}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object: totals, rates as shares (null where nothing was asked), missed tokens by reason."""
        prompt = self.prompt_tokens
        return {
            "turns": self.turns,
            "prompt_tokens": prompt,
            "cached_tokens": self.cached_tokens,
            "reusable_tokens": self.reusable_tokens,
            "hit_rate": self.cached_tokens / prompt if prompt else None,
            "recent_reuse_rate": self.recent_rate,
            "missed_tokens": dict(self.missed),
        }


def reuse_of(stats: RequestStats, before: int, changed: MissReason, *, over_budget: bool) -> TurnReuse:
    """What one request reused of what it could have.

    before        how far the conversation's last prompt reached that an untouched next one repeats, in tokens
    changed       what differs at a prompt's beginning when its divergence says that system or tools changed
    over_budget   records were refused for want of room, so an eviction means that the budget is too small
    """
    reusable = min(stats.prompt_tokens - 1, max(stats.common_prefix_tokens, _kept_by_user(stats, before)))
    reason: MissReason | None = None
    if stats.cached_tokens < stats.common_prefix_tokens:
        reason = _shortfall(stats.shortfall_reason, over_budget)
    elif stats.cached_tokens < reusable:
        reason = _divergence(stats.divergence, changed)
    return TurnReuse(stats.prompt_tokens, max(0, reusable), min(stats.cached_tokens, reusable), reason)


def _divergence(divergence: Divergence, changed: MissReason) -> MissReason:
    if divergence == "system_or_tools_changed":
        return changed
    return "retokenized" if divergence == "retokenized" else "other"


def _kept_by_user(stats: RequestStats, before: int) -> int:
    """The part of the last prompt that nobody chose to change."""
    untouched = ("append", "reasoning_dropped", "retokenized", "system_or_tools_changed")
    return before if stats.divergence in untouched else 0


def _shortfall(reason: ShortfallReason, over_budget: bool) -> MissReason:
    if reason == "none":  # nothing of it is restorable, though nothing is known to be lost
        return "no_anchor"
    return "budget" if reason == "evicted" and over_budget else reason
