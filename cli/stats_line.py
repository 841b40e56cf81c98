"""One request's numbers in one line: what was reused, what was new, how fast, and why not more was reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.stats import RequestStats, ShortfallReason
from .terminal_size import size_of

if TYPE_CHECKING:
    from .streams import Streams

WARNS_AT = 0.8
"""Of the context: from here on the gauge says that it fills up."""

REASONS: dict[ShortfallReason, str] = {
    "none": "",
    "evicted": "older checkpoints made room for newer ones",
    "no_anchor": "no checkpoint nearer to the change",
    "unsupported_class": "this model's cache can't be rewound",
    "image": "a rewind can't end inside an image",
    "io_error": "the scratch file failed",
    "memory": "not enough memory to restore",
    "off": "the cache is off",
}


def print_stats(stats: RequestStats, streams: Streams) -> None:
    """The line on stderr, dim, broken between its parts where the terminal is narrow; a gauge that warns in yellow.

    For example `prompt 4,210 (4,096 cached, 114 new) · rewound 312 · ttft 0.41 s · 62 tok/s · ctx 12 %`.
    """
    width = size_of(streams.stderr).columns if streams.live else None
    spans: list[tuple[str, str]] = []
    used = 0
    for text, style in _parts(stats):
        if spans:
            fits = width is None or used + 3 + len(text) <= width
            spans.append((" · " if fits else "\n", "dim"))
            used = used + 3 if fits else 0
        spans.append((text, style))
        used += len(text)
    streams.spans([*spans, ("\n", "dim")])


def _parts(stats: RequestStats) -> list[tuple[str, str]]:
    """Each number's words and style."""
    ahead = stats.idle_prefill_tokens + stats.typeahead_prefill_tokens
    prompt = (
        f"{stats.cached_tokens:,} cached, {stats.prefill_tokens:,} new{f', {ahead:,} ahead of time' if ahead else ''}"
    )
    parts = [(f"prompt {stats.prompt_tokens:,} ({prompt})", "dim")]
    if stats.rewind_tokens:
        parts.append((f"rewound {stats.rewind_tokens:,}", "dim"))
    parts.append((f"ttft {seconds(stats.ttft_ms)}", "dim"))
    if stats.decode_tokens_per_s > 0:
        parts.append((f"{speed(stats.decode_tokens_per_s)} tok/s", "dim"))
    if stats.context_limit > 0:
        parts.append(_gauge(stats.context_tokens / stats.context_limit))
    if stats.shortfall_reason != "none":
        parts.append((f"not more reused: {REASONS[stats.shortfall_reason]}", "dim"))
    return parts


def _gauge(used: float) -> tuple[str, str]:
    """How full the context is; it warns from WARNS_AT on."""
    if used < WARNS_AT:
        return f"ctx {round(100 * used)} %", "dim"
    return f"ctx {round(100 * used)} %, nearly full", "yellow"


def details(stats: RequestStats) -> list[str]:
    """What /stats adds to the line: where the reused tokens came from, and what it cost."""
    lines = [
        f"reused   {stats.cached_live_tokens:,} from memory, {stats.cached_disk_tokens:,} from disk "
        f"({stats.restore_kind}, {size(stats.restore_bytes)} in {seconds(stats.restore_ms)})",
        f"written  {size(stats.checkpoint_bytes)} of checkpoints",
        f"answer   {stats.completion_tokens:,} tokens, {stats.reasoning_tokens:,} of them reasoning",
        f"prefill  {speed(stats.prefill_tokens_per_s)} tok/s",
        f"memory   {size(stats.peak_memory_bytes)} at most",
        f"context  {stats.context_tokens:,} of {stats.context_limit:,} tokens",
    ]
    return lines


def seconds(milliseconds: float) -> str:
    """A duration: 0.41 s, 12.3 s, 125 s."""
    value = milliseconds / 1000
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def speed(rate: float) -> str:
    """A rate: 9.4, 62, 1,204."""
    return f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}"


def size(count: int) -> str:
    """Bytes for people: 312 B, 4.1 MB, 2.0 GB."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
