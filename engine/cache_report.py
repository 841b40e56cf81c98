"""What the KV cache of a running engine holds and has done, for /cache and --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..cache.counters import StoreStats
from .hit_rate import HitRate


@dataclass(frozen=True)
class CacheReport:
    """`store` None: nothing is written to disk. `live_bytes`: the current conversation's KV in memory."""

    rate: HitRate
    store: StoreStats | None
    directory: str | None
    in_memory: bool
    live_bytes: int
    conversations: int

    def to_json(self) -> dict[str, Any]:
        """The `cache` object of --json."""
        return {
            "directory": self.directory,
            "memory_backed": self.in_memory,
            "live_bytes": self.live_bytes,
            "conversations": self.conversations,
            "reuse": self.rate.to_json(),
            "store": None if self.store is None else store_json(self.store),
        }


def store_json(stats: StoreStats) -> dict[str, Any]:
    """Every figure of the store, bytes unless said otherwise."""
    return {
        "records": stats.records,
        "record_bytes": stats.record_bytes,
        "file_bytes": stats.file_bytes,
        "file_bytes_peak": stats.file_bytes_peak,
        "budget_bytes": stats.budget_bytes,
        "pins": stats.pins,
        "free_extents": stats.free_extents,
        "free_bytes": stats.free_bytes,
        "fragmentation": stats.fragmentation,
        "queue_bytes": stats.queue_bytes,
        "queue_limit_bytes": stats.queue_limit_bytes,
        "writes": stats.writes,
        "bytes_written": stats.bytes_written,
        "bytes_read": stats.bytes_read,
        "evictions": stats.evictions,
        "expired": stats.expired,
        "dropped": dict(stats.dropped),
        "damaged": stats.damaged,
        "errors": stats.errors,
        "cooling": stats.cooling,
        "kept": stats.is_kept,
    }
