"""The KV cache's figures in lines, for /cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .stats_line import size

if TYPE_CHECKING:
    from ..cache.counters import StoreStats
    from ..engine.cache_report import CacheReport
    from ..engine.hit_rate import HitRate

REASONS = {
    "evicted": "evicted",
    "budget": "the budget is too small",
    "no_anchor": "no checkpoint near enough",
    "unsupported_class": "a cache class that can't be rewound",
    "image": "inside an image",
    "io_error": "the disk failed",
    "memory": "not enough memory",
    "off": "the cache is off",
    "retokenized": "other tokens for the same text",
    "system_changed": "the system prompt changed",
    "tools_changed": "the tools changed",
    "template_changed": "the template's beginning changed",
    "other": "the beginning changed",
}


def cache_lines(report: CacheReport) -> list[str]:
    """What was reused and why not more, what is held in memory, what is on disk."""
    lines = [*rate_lines(report.rate), f"memory   {size(report.live_bytes)} of KV in this conversation"]
    if report.store is None:
        return [*lines, "disk     nothing is written"]
    where = f" in {report.directory}" if report.directory else ""
    kind = ", kept for later runs" if report.store.is_kept else ""
    return [*lines, *store_lines(report.store, f"{where}{kind}{', a folder in memory' if report.in_memory else ''}")]


def rate_lines(rate: HitRate) -> list[str]:
    """The process's hit rate, and the tokens that were prefilled twice, by reason."""
    if not rate.turns:
        return ["reused   no turn yet"]
    share = 100 * rate.cached_tokens / max(1, rate.prompt_tokens)
    of = f"{rate.cached_tokens:,} of {rate.prompt_tokens:,} prompt tokens in {_count(rate.turns, 'turn')}"
    lines = [f"reused   {of} ({share:.0f} %)"]
    for reason, tokens in rate.missed.most_common():
        lines.append(f"missed   {tokens:,} tokens: {REASONS[reason]}")
    return lines


def store_lines(store: StoreStats, where: str) -> list[str]:
    """Records, space, queue, traffic and trouble."""
    dropped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(store.dropped.items()))
    lines = [
        f"disk     {_count(store.records, 'record')}, {size(store.record_bytes)}{where}",
        f"file     {size(store.file_bytes)} of {size(store.budget_bytes)}, {size(store.file_bytes_peak)} at most; "
        f"{_count(store.free_extents, 'hole')} of {size(store.free_bytes)} ({100 * store.fragmentation:.0f} %)",
        f"pinned   {_count(store.pins, 'record')}",
        f"queue    {size(store.queue_bytes)} of {size(store.queue_limit_bytes)}"
        + (", the disk is left alone for a while" if store.cooling else ""),
        f"written  {_count(store.writes, 'record')}, {size(store.bytes_written)}; read {size(store.bytes_read)}",
        f"gone     {store.evictions:,} evicted, {store.expired:,} expired, "
        f"{sum(store.dropped.values()):,} not kept{f' ({dropped})' if dropped else ''}",
        f"errors   {store.errors:,}" + (f", {store.damaged:,} damaged records put aside" if store.damaged else ""),
    ]
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
