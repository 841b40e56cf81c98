"""A conversation leaves memory for the disk: what it needs is written, then its KV is freed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from ..cache.store import Store
from .checkpoints import Checkpoints
from .restorer import Restorer
from .sequence import Sequence


class Parking:
    """Engine thread only. `store` None: nothing is written, and nothing brings a freed conversation back."""

    def __init__(self, store: Store | None, restorer: Restorer | None, checkpoints: Checkpoints) -> None:
        self._store = store
        self._restorer = restorer
        self._checkpoints = checkpoints

    def park(self, sequence: Sequence) -> int:
        """Checkpoint the live sequence so that its memory can be freed; returns the bytes handed to the writer."""
        written = 0
        with self.contained():
            written = self._checkpoints.park(sequence)
        return written

    def drop_live(self, sequence: Sequence) -> int:
        """Park, then free the memory."""
        written = self.park(sequence)
        self._free(sequence)
        return written

    def put_aside(self, sequence: Sequence) -> None:
        """One call writes, a later one frees: what the disk didn't take, or has no room for, stays in memory."""
        if sequence.live is None or self._store is None:
            return
        with self.contained():
            if not sequence.offered and self._store.accepts:
                sequence.offered = True  # once: what was not taken then would be evicted, or refused, again
                self.park(sequence)
            elif sequence.offered and self._is_stored(sequence, self._store):
                self._free(sequence)
                mx.clear_cache()

    def _is_stored(self, sequence: Sequence, store: Store) -> bool:
        """Whether records on disk bring a parked sequence back as far as its memory does."""
        live = sequence.live
        if live is None or self._restorer is None or not store.drain(0):
            return False
        ids = live.ids[: self._checkpoints.kept_end(sequence, live)]
        in_memory, on_disk = (self._restorer.reach(ids, one, len(ids), sequence.pictures) for one in (live, None))
        return on_disk >= in_memory

    @staticmethod
    def _free(sequence: Sequence) -> None:
        sequence.live = sequence.advance = None
        sequence.holes = set()

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Around what no answer may depend on: whatever it raises is said once, and goes no further."""
        try:
            yield
        except Exception as error:
            if self._store is not None:
                what = str(error) or type(error).__name__
                self._store.say("failed", f"KV cache: a conversation can't be put aside ({what}); chatting on")
