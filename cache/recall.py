"""Reading records back for whoever asks, and dropping those that can't be used."""

from __future__ import annotations

from collections.abc import Sequence

from .counters import Counters
from .index import Entry, Index
from .reader import Job, Reader
from .records import BadRecord
from .writer import Report


class Recall:
    """The reader, and what is done about a record that it could not bring: a miss, counted, and said once."""

    def __init__(self, reader: Reader, index: Index, counters: Counters, on_trouble: Report) -> None:
        self._reader = reader
        self._index = index
        self._counters = counters
        self._on_trouble = on_trouble
        self._told = False

    def read(self, jobs: Sequence[Job]) -> list[Entry]:
        """Read every entry, verify it, and hand its tensors to its sink, on the reader thread; wait for all.

        Returns the entries that failed, which are dropped from the index. What a sink raises is raised here. Must
        hold: the entries are pinned.
        """
        batch = self._reader.read(jobs)
        for entry, why in batch.failed:
            self._lose(entry, why)
        if batch.raised is not None:
            raise batch.raised
        return [entry for entry, _ in batch.failed]

    def _lose(self, entry: Entry, why: Exception) -> None:
        with self._index.lock:
            if entry.live:
                self._counters.dropped["bad_record" if isinstance(why, BadRecord) else "read_error"] += 1
            if isinstance(why, OSError):
                self._counters.errors += 1
            self._index.remove(entry)
            told, self._told = self._told, True
        if not told:
            self._on_trouble(f"KV cache: a checkpoint can't be used ({why}); that part is prefilled again")
