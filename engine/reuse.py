"""What an engine can reuse: the store, the planner and the trie of one namespace, behind three calls of a turn.

begin    before prefill: rewinds or restores the sequence's live cache to the largest possible position
record   after each call: checkpoints what the call completed
end      after the reply: notes what was fed, pins what the next turn will need
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..cache.checkpoint import Checkpointer
from ..cache.keys import BLOCK, Chain, Ids
from ..cache.layers import Layout
from ..cache.live import HeldState, LiveCache
from ..cache.planner import Plan, Planner
from ..cache.restore import restore
from ..cache.store import Store
from ..cache.trie import SequenceTrie
from .cuts import PREFILL_STEP
from .image_spans import ImageSpan
from .sequence import Sequence as Conversation
from .stats import RequestStats

HELD_STATES = 8  # recurrent states kept by reference per sequence; older ones go to disk or are let go
HELD_BYTES = 512 * 2**20  # and their size, unless that would leave fewer than two
PINNED_TURNS = 2  # of the current conversation: their anchors are not evicted
HEADROOM = 1024  # rows past the prompt that restored buffers have, so that decode doesn't reallocate at once


class Reuse:
    """Engine thread only. `store` None: nothing is written, live sequences are still rewound in memory.

    `layout` None: a cache class that can't be rewound, or --no-cache; every request then starts from nothing.
    """

    def __init__(
        self,
        make_caches: Callable[[], list[Any]],
        layout: Layout | None,
        store: Store | None,
        namespace: bytes,
        *,
        off: bool = False,
    ) -> None:
        self.store = store
        self.trie = SequenceTrie()
        self.layout = layout
        self._make_caches = make_caches
        self._namespace = namespace
        self._planner = Planner(store, layout) if layout is not None and not off else None
        self._why_off = "off" if off else "unsupported_class"

    @property
    def works(self) -> bool:
        """Whether anything is reused at all."""
        return self._planner is not None

    def apart(self) -> Reuse:
        """One that reuses nothing and keeps nothing, for a run that must leave no trace."""
        return Reuse(self._make_caches, None, None, b"", off=True)

    # -- begin -------------------------------------------------------------------------------------------------

    def begin(
        self, sequence: Conversation, ids: Ids, stats: RequestStats, pictures: Sequence[ImageSpan] = ()
    ) -> LiveCache:
        """Give the sequence a live cache that holds the longest restorable prefix of `ids`, at most len(ids) - 1.

        ids    elements: the positions of `pictures` stand for what they show
        """
        stats.prompt_tokens = len(ids)
        stats.common_prefix_tokens = self.trie.longest_match(ids)
        live = sequence.live
        before = live.length if live is not None else 0
        if self._planner is None:
            stats.shortfall_reason = self._why_off if stats.common_prefix_tokens else "none"  # type: ignore[assignment]
            sequence.live = self.fresh()
        else:
            sequence.live = self._restored(sequence, ids, stats, pictures)
        sequence.pictures = sequence.live.pictures = pictures
        position = sequence.live.length
        stats.cached_tokens = position
        stats.prefill_tokens = len(ids) - position
        # What had to be taken back: of the live sequence, or of what this conversation last held.
        stats.rewind_tokens = max(0, (before or len(sequence.fed)) - position) if sequence.fed.size else 0
        return sequence.live

    def fresh(self) -> LiveCache:
        """An empty live cache."""
        layout = self.layout if self.layout is not None else Layout((), None, 0)
        return LiveCache(self._make_caches(), layout, self._namespace)

    def _restored(
        self, sequence: Conversation, ids: Ids, stats: RequestStats, pictures: Sequence[ImageSpan]
    ) -> LiveCache:
        assert self._planner is not None
        keys = Chain(self._namespace)
        keys.append(ids)
        started = time.perf_counter()
        while True:
            known = stats.common_prefix_tokens
            plan = self._planner.plan(ids, keys.keys, sequence.live, len(ids) - 1, known, pictures)
            self._keep_branch(sequence, plan)
            if not plan.uses_live:
                sequence.live = None  # its memory goes before the restore asks for as much again
            live = sequence.live if sequence.live is not None else self.fresh()
            live.pictures = ()  # what follows hands elements over, not ids
            if plan.position == 0:
                break
            if self.store is None or not plan.entries:
                live.trim(plan.position)
                break
            worked, stats.restore_bytes = restore(plan, self.store, live, ids, len(ids) - plan.position + HEADROOM)
            if worked:
                break
        self._tell(plan, stats, (time.perf_counter() - started) * 1000)
        live.check()
        assert live.length == plan.position
        return live

    def _keep_branch(self, sequence: Conversation, plan: Plan) -> None:
        """Before a branch is left that one may come back to (an edit, a retry): park it."""
        live = sequence.live
        if live is not None and plan.position < (sequence.stable if sequence.drops_reply else live.length):
            self.park(sequence)

    def _tell(self, plan: Plan, stats: RequestStats, milliseconds: float) -> None:
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

    # -- record ------------------------------------------------------------------------------------------------

    def record_prefill(self, sequence: Conversation, start: int, end: int, kind: str | None, tail: bool) -> int:
        """After a prefill call [start, end): its blocks, the state if there is a `kind` of mark, the rows left over.

        The rows of every anchor of this prompt lie in its whole blocks or in the one `tail`, so rows are written once.
        Returns the bytes handed to the writer.
        """
        live = sequence.live
        assert live is not None
        written = 0
        if self._planner is not None:
            if kind is not None:
                live.hold_state(kind)
            if self.store is not None:
                checkpointer = Checkpointer(self.store, live)
                checkpointer.blocks(start, end, wait=True)
                if tail:
                    checkpointer.tail(end, wait=True)
                cuts_picture = any(span.inside(end) for span in sequence.pictures)
                if live.layout.states is not None and end % PREFILL_STEP == 0 and not cuts_picture:
                    checkpointer.state(live.state_now("step"), wait=True)
                self._displace_states(live, checkpointer)
                written = checkpointer.bytes_written
        live.compact()
        return written

    def record_decode(self, sequence: Conversation, dropped: bool) -> int:
        """After a decode call: the block that it completed, unless the template will drop this part of the reply."""
        live = sequence.live
        assert live is not None
        written = 0
        if self.store is not None and self._planner is not None and live.length % BLOCK == 0 and not dropped:
            checkpointer = Checkpointer(self.store, live)
            checkpointer.blocks(live.length - BLOCK, live.length, wait=False)
            written = checkpointer.bytes_written
        live.compact()
        return written

    def _displace_states(self, live: LiveCache, checkpointer: Checkpointer) -> None:
        """Bound the states held by reference: the oldest is written, unless later anchors of its kind replaced it."""
        while len(live.states) > HELD_STATES or (len(live.states) > 2 and live.state_bytes > HELD_BYTES):
            oldest = live.states.pop(0)
            if not superseded(oldest, live.states):
                checkpointer.state(oldest, wait=True)

    def abandon(self, sequence: Conversation) -> None:
        """After a failure: what was fed stays known, the live caches, in whatever state they are, are let go."""
        if sequence.live is not None:
            self.trie.add(sequence.live.ids)
        sequence.live = None

    # -- end ---------------------------------------------------------------------------------------------------

    def end(self, sequence: Conversation) -> None:
        """Note what was fed, and pin what the next turn will go back to."""
        live = sequence.live
        assert live is not None
        sequence.fed = np.array(live.ids, np.int32)
        self.trie.add(sequence.fed)
        self._pin(sequence, sequence.fed[: sequence.stable], live.chain.keys[: sequence.stable // BLOCK + 1])

    def _pin(self, sequence: Conversation, stable: Ids, keys: list[bytes]) -> None:
        """Keep from eviction what restores the stable prefixes of the last turns."""
        if self.store is None or self._planner is None or not len(stable):
            return
        sequence.pins.append(self._planner.plan(stable, keys, None, len(stable), 0, sequence.pictures).entries)
        while len(sequence.pins) > PINNED_TURNS:
            self.store.unpin(sequence.pins.popleft())

    def unpin(self, sequence: Conversation) -> None:
        """The conversation is no longer the current one: its records may be evicted."""
        while self.store is not None and sequence.pins:
            self.store.unpin(sequence.pins.popleft())

    def park(self, sequence: Conversation) -> int:
        """Checkpoint the live sequence so that its memory can be freed; returns the bytes handed to the writer.

        A reply that the template will drop is not written: nothing will ever go back to its end.
        """
        live = sequence.live
        if live is None or self.store is None or self._planner is None or live.length == 0:
            return 0
        checkpointer = Checkpointer(self.store, live)
        for held in live.states:
            if not superseded(held, live.states):
                checkpointer.state(held, wait=True)
        if not sequence.drops_reply:
            checkpointer.blocks(0, live.length, wait=True)
            checkpointer.tail(live.length, wait=True)
            if live.layout.states is not None:
                checkpointer.state(live.state_now("parked"), wait=True)
        return checkpointer.bytes_written

    def drop_live(self, sequence: Conversation) -> int:
        """Park, then free the memory."""
        written = self.park(sequence)
        sequence.live = None
        return written


def superseded(held: HeldState, states: list[HeldState]) -> bool:
    """Whether four later anchors of the same kind are held: edits reach that far back, rewinds never do."""
    return sum(other.kind == held.kind and other.position > held.position for other in states) >= 4
