"""Puts a sequence's caches as far along a prompt as they can be: a plan, the memory for it, the restore itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..cache.keys import BLOCK, Chain, Ids, Place
from ..cache.layers import Layout
from ..cache.live import LiveCache
from ..cache.memory import Memory
from ..cache.planner import Plan, Planner
from ..cache.restore import OutOfMemory, needed_bytes, restore, rows_that_fit
from ..cache.store import Store
from .image_spans import ImageSpan
from .sequence import Sequence as Conversation
from .stats import RequestStats

HEADROOM = 1024  # rows past the prompt that restored buffers have, so that decode doesn't reallocate at once
Leave = Callable[[Conversation, Plan], None]


class Restorer:
    """Engine thread only. `store` None: live sequences are rewound in memory, nothing comes from records.

    fresh    makes an empty live cache
    leave    is called with each plan before the sequence's old position is given up
    """

    def __init__(
        self,
        store: Store | None,
        layout: Layout,
        namespace: bytes,
        memory: Memory,
        fresh: Callable[[], LiveCache],
        leave: Leave,
    ) -> None:
        self.planner = Planner(store, layout)
        self._store = store
        self._layout = layout
        self._namespace = namespace
        self._memory = memory
        self._fresh = fresh
        self._leave = leave

    def reach(self, ids: Ids, live: LiveCache | None, limit: int, pictures: Sequence[ImageSpan]) -> int:
        """The position that `restored` would be asked for, without going there."""
        keys = Chain(self._namespace)
        keys.append(ids)
        plan = self.planner.plan(ids, keys.keys, live, limit, 0, pictures)
        if self._store is not None:
            self._store.unpin(plan.entries)
        return plan.position

    def restored(
        self, sequence: Conversation, ids: Ids, limit: int, stats: RequestStats, pictures: Sequence[ImageSpan]
    ) -> LiveCache:
        """A live cache at the greatest position <= `limit` of `ids` (elements) that every layer can be put to.

        `stats` is told how it came there, and why not further.
        """
        keys = Chain(self._namespace)
        keys.append(ids)
        started = time.perf_counter()
        short = False
        while True:
            known = stats.common_prefix_tokens
            plan = self.planner.plan(ids, keys.keys, sequence.live, limit, known, pictures)
            self._leave(sequence, plan)
            if not plan.uses_live:
                sequence.live = None  # its memory goes before the restore asks for as much again
            live = sequence.live if sequence.live is not None else self._fresh()
            live.pictures = ()  # what follows hands elements over, not ids
            if plan.position == 0:
                break
            self._note_use(sequence, plan, ids, keys.keys, stats)
            if self._store is None or not plan.entries:
                live.trim(plan.position)
                break
            room, fits = self._reserved(plan, len(ids) - plan.position + HEADROOM)
            if fits < plan.position:
                self._store.unpin(plan.entries)
                limit, short = fits, True
                continue
            try:
                worked, stats.restore_bytes = restore(plan, self._store, live, ids, room)
            except OutOfMemory:
                limit, short = 0, True
                continue
            if worked:
                break
        self._tell(plan, stats, (time.perf_counter() - started) * 1000)
        if short:
            stats.shortfall_reason = "memory"
        live.check()
        assert live.length == plan.position
        return live

    def _reserved(self, plan: Plan, room: int) -> tuple[int, int]:
        """How many rows past the position the buffers may have, and the last position whose buffers fit in memory.

        What is free is asked before anything is read. Room for the next calls is given up first, then the restore's
        length.
        """
        left = self._memory.left()
        for space in (room, 0):
            if needed_bytes(plan, self._layout.rows, space) <= left:
                return space, plan.position
        return 0, min(plan.position - 1, rows_that_fit(plan, self._layout.rows, left))

    def _note_use(self, sequence: Conversation, plan: Plan, ids: Ids, keys: list[bytes], stats: RequestStats) -> None:
        """What the plan's position needs stays longest. A branch whose reasoning was dropped goes first."""
        if self._store is None:
            return
        if stats.divergence == "reasoning_dropped" and len(sequence.fed) > plan.position:
            fed = Chain(self._namespace)
            fed.append(sequence.fed)
            end = min(len(sequence.fed), plan.position // BLOCK * BLOCK + BLOCK)
            self._store.demote([Place.at(fed.keys, sequence.fed, end)])
        self._store.touch([Place.at(keys, ids, plan.position)], plan.entries)
        # A record that goes on past the position holds words of someone else, and is deleted with them.
        self._store.use(sequence.name, [entry for entry in plan.entries if entry.header.position <= plan.position])

    @staticmethod
    def _tell(plan: Plan, stats: RequestStats, milliseconds: float) -> None:
        stats.restorable_tokens = plan.position
        stats.shortfall_reason = plan.reason
        if plan.position == 0:
            return
        if plan.entries:
            stats.restore_kind = "block" if plan.at_edge else "anchor"
            stats.cached_disk_tokens = plan.disk_tokens
            stats.restore_ms = milliseconds
        else:
            stats.restore_kind = "live"
        stats.cached_live_tokens = plan.position - stats.cached_disk_tokens
