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
