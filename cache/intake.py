"""Taking records in: there already, refused, or queued for the writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .counters import Counters
from .index import Entry, Index
from .records import Buffer, RecordHeader, payload_views
from .writer import Writer

Submitted = Literal["queued", "present", "full", "too_large", "off"]


class Intake:
    """What stands between whoever has a record and the queue. Takes the store's lock itself."""

    def __init__(self, index: Index, writer: Writer, counters: Counters) -> None:
        self._index = index
        self._writer = writer
        self._counters = counters

    def submit(self, header: RecordHeader, payload: Sequence[Buffer], *, wait: bool, priority: int) -> Submitted:
        """Queue a record, if it isn't there already and may be queued; what came of it.

        ValueError if sizes and positions contradict each other.
        """
        views = tuple(payload_views(header, payload))
        with self._index.lock:
            self._index.link(header.place)
            if self._is_present(header):
                return "present"
            answer = self._writer.admit(header.nbytes, wait, priority)
            # Waiting lets the lock go: someone else may have brought the record meanwhile.
            if answer == "queued" and self._is_present(header):
                return "present"
            if answer == "queued":
                entry = Entry(header, views, priority, users={header.user} if header.user else set())
                self._replace(entry)
                self._index.insert(entry)
                self._writer.put(entry)
            else:
                self._counters.dropped[answer] += 1
        self._writer.report_failure()
        return answer

    def _is_present(self, header: RecordHeader) -> bool:
        """Whether these rows are held already; if so, their user uses what holds them, and the chain is refreshed."""
        if header.row_start == header.position:  # no rows but a state, which belongs to its position
            there = self._index.groups(header.place).get(header.group)
            used = [there] if there is not None else []
        else:
            rows = (header.row_start, header.position)
            held, used = self._index.holders(header.place, header.group, rows, header.user)
            used = used if held == header.position else []
        self._index.use(header.user, used)
        if used:
            self._index.touch([header.place], used)
        return bool(used)

    def _replace(self, entry: Entry) -> None:
        """One with fewer rows goes; who used it uses the new one."""
        there = self._index.groups(entry.header.place).get(entry.header.group)
        if there is not None:
            entry.users |= there.users
            self._index.remove(there)
