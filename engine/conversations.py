"""The conversations that the engine knows: some of them current, the others parked, the oldest forgotten.

Their records are in the store whether the engine still knows them or not: what is forgotten here is only how a next
prompt would depart from the last one.
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from .reuse import Reuse
from .sequence import Sequence

MOST_KNOWN: Final = 64


class Conversations:
    """Sequences by conversation, the one used last at the end. Engine thread only.

    `recent` is how many of those used last stay in memory: one, and as many as may be active at once.
    `ttl` is how many seconds a conversation's KV is kept, in memory and in the store, after it was last used; None: as
    long as there is room.
    `park` is how many seconds it stays in memory after that, if the store has what brings it back; None: until others
    come.
    """

    def __init__(
        self, reuse: Reuse, ttl: float | None = None, clock: Callable[[], float] = time.time, recent: int = 1
    ) -> None:
        self.known: OrderedDict[str, Sequence] = OrderedDict()
        self.ttl = ttl
        self.park: float | None = None
        self._recent = recent
        self._reuse = reuse
        self._clock = clock
        self._numbers = itertools.count(1)

    def of(self, name: str, day: str | None = None) -> Sequence:
        """The sequence of a conversation, now the current one; if it isn't known, a new one begun on `day` (ISO).

        day     None: today
        """
        sequence = self.known.get(name)
        if sequence is None:
            sequence = self.known[name] = Sequence(next(self._numbers), name)
            sequence.date = day or sequence.date
        self.known.move_to_end(name)
        self.rest(sequence)
        return sequence

    def leave_all_but(self, *current: Sequence) -> None:
        """A conversation that is neither current nor recent holds no KV in memory, and pins nothing."""
        kept = {id(sequence) for sequence in (*current, *list(self.known.values())[-self._recent :])}
        for other in self.known.values():
            if id(other) not in kept:
                self._reuse.parking.drop_live(other)
                self._reuse.unpin(other)
        while len(self.known) > MOST_KNOWN and id(next(iter(self.known.values()))) not in kept:
            self.known.popitem(last=False)

    def rest(self, sequence: Sequence) -> None:
        """It is used: a request of it begins, or has ended."""
        sequence.used_at, sequence.offered = self._clock(), False

    def forget(self, name: str) -> int:
        """The conversation is deleted; how many records only it used. Must hold: no request of it is under way."""
        return self._reuse.forget(self.known.pop(name, Sequence(0, name)))

    def expire(self) -> None:
        """Let go of what has been idle for longer than the time to live: in memory first, then in the store."""
        if self.ttl is None:
            return
        since = self._clock() - self.ttl
        for sequence in self.known.values():
            if sequence.used_at < since:
                sequence.live = sequence.advance = None
                self._reuse.unpin(sequence)
        if self._reuse.store is not None:
            with self._reuse.parking.contained():
                self._reuse.store.expire(self.ttl)

    def park_idle(self) -> None:
        """Let those that have been idle for `park` seconds leave memory for the disk."""
        if self.park is None:
            return
        since = self._clock() - self.park
        for sequence in self.known.values():
            if sequence.used_at <= since:
                self._reuse.parking.put_aside(sequence)

    def park_all(self) -> None:
        """Write what the conversations would need to go on in another program, and free their memory."""
        for sequence in self.known.values():
            self._reuse.parking.drop_live(sequence)
