"""Which waiting request may begin, and whether its KV fits in memory beside the active ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..cache.memory import Memory
from .events import Notice
from .kv_shape import CacheShape
from .request import Request, Run
from .restorer import HEADROOM

_MIB = 1024 * 1024


def first_free(waiting: Iterable[Request], active: Iterable[Run]) -> Request | None:
    """The oldest request whose conversation has none before it: those of one conversation run in order."""
    taken = {run.request.conversation for run in active}
    return next((request for request in waiting if request.conversation not in taken), None)


class Admission:
    """Holds a request back while it wouldn't fit. Engine thread only.

    One that is held back is asked again when an active one has ended, and is let in when none is left: what it can't
    have then, its restore does without.
    """

    def __init__(self, shape: CacheShape, memory: Memory) -> None:
        self._shape = shape
        self._memory = memory
        self._held: Run | None = None
        self._beside = 0

    def rendered(self, request: Request) -> Run | None:
        """The run of a request that has been held back."""
        return self._held if self._held is not None and self._held.request is request else None

    def asks_again(self, active: Sequence[Run]) -> bool:
        """Whether anything has changed for the one that is held back, if there is one."""
        return self._held is None or len(active) < self._beside

    def holds_back(self, run: Run, active: Sequence[Run]) -> bool:
        """Whether `run` has to wait, which it is told once. One that is cancelled never does: it is about to end."""
        needed = self.needed_bytes(run)
        waits = bool(active) and not run.request.cancelled.is_set() and needed > (left := self._memory.left())
        if waits and self._held is not run:
            run.request.events.put(
                Notice(f"waiting for memory: its KV takes {needed // _MIB:,} MiB, {left // _MIB:,} MiB are free")
            )
        self._held, self._beside = (run, len(active)) if waits else (None, 0)
        return waits

    def needed_bytes(self, run: Run) -> int:
        """What the prompt's KV and that of an answer of usual length will take, by the model's config."""
        return self._shape.total_bytes(len(run.prompt.ids) + min(run.max_tokens, HEADROOM))
