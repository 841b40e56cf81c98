"""Which requests read most of what they had read before, why, and what would mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.stats import Divergence, ShortfallReason
from .planned import Difference, Planned
from .rows import Row

SHOWN = 5


@dataclass(frozen=True)
class Costly:
    """One request: tokens prefilled again, where its prompt parts from the last one, cause and remedy in words."""

    row: Row
    tokens: int
    cause: str
    remedy: str

    @property
    def difference(self) -> Difference | None:
        """The first token that differs."""
        return self.row.planned.difference


_DIVERGENCES: dict[Divergence, tuple[str, str]] = {
    "reasoning_dropped": (
        "the template leaves the reasoning of earlier turns out, so what came after it is read again",
        "nothing to mend in the client; a template or setting that keeps reasoning would avoid it",
    ),
    "history_edited": (
        "earlier messages were changed, removed or summarised",
        "append to the history instead of rewriting it; if it must shrink, shrink it rarely and in one step",
    ),
    "retokenized": (
        "the same words came back as other tokens (JSON spelled anew, white space trimmed)",
        "send text and tool arguments back exactly as the model wrote them",
    ),
    "system_or_tools_changed": (
        "the system prompt changed",
        "keep dates, counters and state out of the system prompt: put them into the last message",
    ),
    "image_changed": (
        "another picture stands in the same place",
        "keep each picture with the message that it came with",
    ),
    "other": ("the prompt parts from what was fed", "compare the two requests from the named token on"),
}
_TOOLS_CHANGED = (
    "the tools changed, and they stand before everything else",
    "send the same tools in the same order with every request; forbid one in words instead of leaving it out",
)
_SCAFFOLD_LOST = (
    "the prompt opens a thought, and the recorded answer has none",
    "the transcript has no reasoning: render it without, with --no-think or another --template",
)
_SHORTFALLS: dict[ShortfallReason, tuple[str, str]] = {
    "evicted": ("its checkpoints had made room for newer ones", "give the KV cache more room: --cache-bytes"),
    "no_anchor": ("no checkpoint stands at the change", "nothing to mend; edits far back find the next older one"),
    "unsupported_class": ("this model's cache can't be rewound", "choose a model whose `models info` says reuse"),
    "image": ("a rewind can't end inside an image", "nothing to mend"),
    "io_error": ("the scratch file failed", "see the notices above; --cache-dir names another disk"),
    "memory": ("there was not enough memory to restore", "a shorter context (--max-context) or a smaller model"),
    "off": ("the cache is off", "leave --no-cache out"),
}


def costliest(rows: Sequence[Row], count: int = SHOWN) -> list[Costly]:
    """The `count` requests that prefilled most of what they need not have, the worst first."""
    found = [costly for row in rows if row.outcome == "run" and (costly := _costly(row)) is not None]
    return sorted(found, key=lambda costly: (-costly.tokens, costly.row.planned.job.number))[:count]


def _costly(row: Row) -> Costly | None:
    planned, stats = row.planned, row.stats
    lost = max(0, planned.ideal_tokens - stats.cached_tokens)
    if lost > planned.again_tokens and stats.shortfall_reason != "none":
        return Costly(row, lost, *_SHORTFALLS[stats.shortfall_reason])
    tokens = planned.again_tokens + lost
    if tokens <= 0 or stats.divergence not in _DIVERGENCES:
        return None
    return Costly(row, tokens, *_words(planned, stats.divergence))


def _words(planned: Planned, divergence: Divergence) -> tuple[str, str]:
    if divergence == "system_or_tools_changed" and planned.tools_changed:
        return _TOOLS_CHANGED
    if divergence == "reasoning_dropped" and planned.scaffold_lost:
        return _SCAFFOLD_LOST
    return _DIVERGENCES[divergence]
