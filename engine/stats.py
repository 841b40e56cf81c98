"""The numbers of one request, by the stable names of the JSON contract, and their sum over a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

ShortfallReason = Literal["none", "evicted", "no_anchor", "unsupported_class", "image", "io_error", "memory", "off"]
RestoreKind = Literal["live", "anchor", "block", "none"]
Divergence = Literal[
    "first",
    "append",
    "reasoning_dropped",
    "history_edited",
    "retokenized",
    "system_or_tools_changed",
    "image_changed",
    "other",
]
FinishReason = Literal["stop", "length", "interrupted", "tool_denied", "max_steps", "error"]


@dataclass
class RequestStats:
    """What one request cost. Tokens are counts, `_ms` milliseconds, `_bytes` bytes, rates tokens per second.

    prompt_tokens = cached_tokens + prefill_tokens + idle_prefill_tokens + typeahead_prefill_tokens
    cached_tokens = cached_live_tokens + cached_disk_tokens
    """

    turn: int = 0
    prompt_tokens: int = 0
    common_prefix_tokens: int = 0
    restorable_tokens: int = 0
    shortfall_reason: ShortfallReason = "none"
    cached_tokens: int = 0
    cached_live_tokens: int = 0
    cached_disk_tokens: int = 0
    prefill_tokens: int = 0
    idle_prefill_tokens: int = 0
    typeahead_prefill_tokens: int = 0
    rewind_tokens: int = 0
    restore_kind: RestoreKind = "none"
    divergence: Divergence = "first"
    restore_ms: float = 0.0
    restore_bytes: int = 0
    checkpoint_bytes: int = 0
    ttft_ms: float = 0.0
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    peak_memory_bytes: int = 0
    context_tokens: int = 0
    context_limit: int = 0
    image_tokens: int = 0
    images_encoded: int = 0
    image_features_reused: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


_SUMMED = (
    "prompt_tokens",
    "common_prefix_tokens",
    "restorable_tokens",
    "cached_tokens",
    "cached_live_tokens",
    "cached_disk_tokens",
    "prefill_tokens",
    "idle_prefill_tokens",
    "typeahead_prefill_tokens",
    "rewind_tokens",
    "restore_ms",
    "restore_bytes",
    "checkpoint_bytes",
    "completion_tokens",
    "reasoning_tokens",
    "image_tokens",
    "images_encoded",
    "image_features_reused",
    "prefill_ms",
    "decode_ms",
)


def total(requests: Sequence[RequestStats]) -> dict[str, Any]:
    """The `stats` object of a run: tokens, bytes and ms summed; ttft and context of the last request; rates as ratios.

    restore_kind, divergence, shortfall_reason and turn belong to one request and are left out.
    """
    if not requests:
        return {}
    out: dict[str, Any] = {name: sum(getattr(r, name) for r in requests) for name in _SUMMED}
    last = requests[-1]
    out["ttft_ms"] = last.ttft_ms
    out["context_tokens"] = last.context_tokens
    out["context_limit"] = last.context_limit
    out["peak_memory_bytes"] = max(r.peak_memory_bytes for r in requests)
    out["prefill_tokens_per_s"] = rate(out["prefill_tokens"], out["prefill_ms"])
    out["decode_tokens_per_s"] = rate(out["completion_tokens"], out["decode_ms"])
    return out


def rate(tokens: int, milliseconds: float) -> float:
    """Tokens per second; 0 when no time was measured."""
    return tokens / (milliseconds / 1000) if milliseconds > 0 else 0.0
