"""What the store counts, and the snapshot of it that others see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Running totals, changed under the store's lock. `dropped` counts records that were not kept, by reason."""

    writes: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    evictions: int = 0
    errors: int = 0
    expired: int = 0
    damaged: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class StoreStats:
    """A snapshot. Bytes unless said otherwise.

    records, record_bytes    findable now, waiting or written
    file_bytes, _peak        length of the scratch file, now and at its longest
    free_extents, free_bytes holes in it
    queue_bytes              waiting for the writer
    pins                     entries pinned now
    writes, bytes_written    records written since the start; evictions: records evicted
    dropped                  records not kept, by reason: full, displaced, too_large, no_room, off, cooling,
                             write_error, read_error, bad_record
    errors                   system calls that failed
    expired                  records deleted because nobody had needed them for the time to live
    damaged                  records of a kept file that were put aside when it was opened
    is_kept                  whether the file outlives the program
    budget_bytes, queue_limit_bytes   the most that file_bytes and queue_bytes may be
    cooling                  whether the disk is left alone for a while after an error, or the writer is gone
    """

    records: int
    record_bytes: int
    file_bytes: int
    file_bytes_peak: int
    pins: int
    free_extents: int
    free_bytes: int
    queue_bytes: int
    writes: int
    bytes_written: int
    bytes_read: int
    evictions: int
    dropped: Mapping[str, int]
    errors: int
    expired: int
    damaged: int
    is_kept: bool
    budget_bytes: int
    queue_limit_bytes: int
    cooling: bool

    @property
    def fragmentation(self) -> float:
        """The share of the file that is holes, 0 to 1."""
        return self.free_bytes / self.file_bytes if self.file_bytes else 0.0
