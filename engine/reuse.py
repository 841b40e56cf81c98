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
from ..cache.keys import BLOCK, Chain, Ids, Place
from ..cache.layers import Layout
from ..cache.live import HeldState, LiveCache
from ..cache.memory import Memory, default_held_bytes
from ..cache.planner import Plan, Planner
from ..cache.restore import OutOfMemory, needed_bytes, restore, rows_that_fit
from ..cache.store import Store
from ..cache.trie import SequenceTrie, common_prefix
from .cuts import PREFILL_STEP
from .image_spans import ImageSpan
from .sequence import Advance
from .sequence import Sequence as Conversation
from .stats import RequestStats

HELD_STATES = 8  # recurrent states kept by reference per sequence (and bytes of them, from what memory there is,
# unless that would leave fewer than two); older ones go to disk or are let go
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
        memory: Memory | None = None,
    ) -> None:
        self.store = store
        self.trie = SequenceTrie()
        self.layout = layout
        self._make_caches = make_caches
        self._namespace = namespace
        self._planner = Planner(store, layout) if layout is not None and not off else None
        self._fed_ahead: Ids | None = None
        self._why_off = "off" if off else "unsupported_class"
        self._memory = memory if memory is not None else Memory()
        self._held_bytes = default_held_bytes()

    @property
    def works(self) -> bool:
        """Whether anything is reused at all."""
        return self._planner is not None

    @property
    def is_over_budget(self) -> bool:
        """Whether a record was refused because the budget is too small for it, or for it and what it stands on."""
        dropped = self.store.stats().dropped if self.store is not None else {}
        return bool(dropped.get("no_room") or dropped.get("too_large"))

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
        live, advance = sequence.live, sequence.advance
        before = advance.before if advance is not None else live.length if live is not None else 0
        if advance is not None and live is not None:
            self._fed_ahead = np.array(live.ids, np.int32)  # joins the trie after this turn
        if self._planner is None:
            stats.shortfall_reason = self._why_off if stats.common_prefix_tokens else "none"  # type: ignore[assignment]
            sequence.live = self.fresh()
        else:
            sequence.live = self._restored(sequence, ids, len(ids) - 1, stats, pictures)
        self._hand_over(sequence, pictures)
        position = sequence.live.length
        sequence.holes = {block for block in sequence.holes if (block + 1) * BLOCK <= position}
        stats.prefill_tokens = len(ids) - position
        kept = position
        if advance is not None and stats.restore_kind == "live" and position > advance.start:
            self._adopt(sequence, advance, position, stats)
            kept = advance.start
        sequence.advance = None
        # A kept cache remembers sequences that this process has never fed.
        stats.common_prefix_tokens = max(stats.common_prefix_tokens, kept)
        stats.cached_tokens = position - stats.idle_prefill_tokens - stats.typeahead_prefill_tokens
        # What had to be taken back: of the live sequence, or of what this conversation last held.
        stats.rewind_tokens = max(0, (before or len(sequence.fed)) - kept) if sequence.fed.size else 0
        return sequence.live

    @staticmethod
    def _hand_over(sequence: Conversation, pictures: Sequence[ImageSpan]) -> None:
        """What the calls to come must know of the sequence."""
        assert sequence.live is not None
        sequence.pictures = sequence.live.pictures = pictures
        sequence.live.owner = sequence.name

    def fresh(self) -> LiveCache:
        """An empty live cache."""
        layout = self.layout if self.layout is not None else Layout((), None, 0)
        return LiveCache(self._make_caches(), layout, self._namespace)

    def _restored(
        self, sequence: Conversation, ids: Ids, limit: int, stats: RequestStats, pictures: Sequence[ImageSpan]
    ) -> LiveCache:
        assert self._planner is not None
        keys = Chain(self._namespace)
        keys.append(ids)
        started = time.perf_counter()
        short = False
        while True:
            known = stats.common_prefix_tokens
            plan = self._planner.plan(ids, keys.keys, sequence.live, limit, known, pictures)
            self._keep_branch(sequence, plan)
            if not plan.uses_live:
                sequence.live = None  # its memory goes before the restore asks for as much again
            live = sequence.live if sequence.live is not None else self.fresh()
            live.pictures = ()  # what follows hands elements over, not ids
            if plan.position == 0:
                break
            self._note_use(sequence, plan, ids, keys.keys, stats)
            if self.store is None or not plan.entries:
                live.trim(plan.position)
                break
            room, fits = self._reserved(plan, len(ids) - plan.position + HEADROOM)
            if fits < plan.position:
                self.store.unpin(plan.entries)
                limit, short = fits, True
                continue
            try:
                worked, stats.restore_bytes = restore(plan, self.store, live, ids, room)
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
        assert self.layout is not None
        left = self._memory.left()
        for space in (room, 0):
            if needed_bytes(plan, self.layout.rows, space) <= left:
                return space, plan.position
        return 0, min(plan.position - 1, rows_that_fit(plan, self.layout.rows, left))

    def _note_use(self, sequence: Conversation, plan: Plan, ids: Ids, keys: list[bytes], stats: RequestStats) -> None:
        """What the plan's position needs stays longest. A branch whose reasoning was dropped goes first."""
        if self.store is None:
            return
        if stats.divergence == "reasoning_dropped" and len(sequence.fed) > plan.position:
            fed = Chain(self._namespace)
            fed.append(sequence.fed)
            end = min(len(sequence.fed), plan.position // BLOCK * BLOCK + BLOCK)
            self.store.demote([Place.at(fed.keys, sequence.fed, end)])
        self.store.touch([Place.at(keys, ids, plan.position)], plan.entries, sequence.name)

    def _keep_branch(self, sequence: Conversation, plan: Plan) -> None:
        """Before a branch is left that one may come back to (an edit, a retry): park it."""
        live = sequence.live
        if live is None or sequence.advance is not None:
            return
        if plan.position < (sequence.stable if sequence.drops_reply else live.length):
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

    # -- ahead of a request ------------------------------------------------------------------------------------

    def waiting(self, sequence: Conversation, ids: Ids) -> int:
        """How many of `ids` the live sequence doesn't hold; 0 where nothing would be reused anyway."""
        if self._planner is None:
            return 0
        return len(ids) - (common_prefix(ids, sequence.live.ids) if sequence.live is not None else 0)

    def begin_ahead(self, sequence: Conversation, ids: Ids, open_at: int, pictures: Sequence[ImageSpan] = ()) -> int:
        """Put the sequence as far along `ids` (elements), which a coming prompt will begin with, as it can be restored.

        Returns that position, which may be all of `ids`. What it cost is told with the request that follows.
        """
        before, cost = sequence.live.length if sequence.live is not None else 0, RequestStats()
        sequence.live = self._restored(sequence, ids, len(ids), cost, pictures)
        self._hand_over(sequence, pictures)
        position, advance = sequence.live.length, sequence.advance
        if advance is None or position < advance.start:
            before = advance.before if advance is not None else before
            cost.checkpoint_bytes = advance.cost.checkpoint_bytes if advance is not None else 0
            sequence.advance = Advance(before, position, max(position, open_at), cost)
        else:
            advance.open = max(advance.start, open_at)
        return position

    def record_ahead(self, sequence: Conversation, start: int, end: int, kind: str | None, *, last: bool) -> None:
        """As `record_prefill`. `last`: the user's words begin here, and a window may have to come back to it."""
        tail = last and any(group.window is not None for group in self.layout.rows) if self.layout else False
        written = self.record_prefill(sequence, start, end, kind, tail)
        if sequence.advance is not None:
            sequence.advance.cost.checkpoint_bytes += written

    def _adopt(self, sequence: Conversation, advance: Advance, position: int, stats: RequestStats) -> None:
        """The request goes on where the work ahead of it ended: its restore and its tokens are told apart."""
        assert sequence.live is not None
        cost = advance.cost
        stats.idle_prefill_tokens = min(position, advance.open) - advance.start
        stats.typeahead_prefill_tokens = max(0, position - max(advance.open, advance.start))
        stats.restore_kind = cost.restore_kind
        stats.restore_ms, stats.restore_bytes = cost.restore_ms, cost.restore_bytes
        stats.cached_disk_tokens = cost.cached_disk_tokens
        stats.cached_live_tokens = advance.start - cost.cached_disk_tokens
        stats.checkpoint_bytes += cost.checkpoint_bytes
        stats.images_encoded += cost.images_encoded
        stats.image_features_reused += cost.image_features_reused
        if self.store is not None and stats.typeahead_prefill_tokens:
            checkpointer = Checkpointer(self.store, sequence.live, sequence.name)
            checkpointer.blocks(advance.open, position, wait=True)
            stats.checkpoint_bytes += checkpointer.bytes_written

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
                checkpointer = Checkpointer(self.store, live, sequence.name)
                checkpointer.blocks(start, end, wait=True)
                if tail:
                    checkpointer.tail(end, wait=True)
                cuts_picture = any(span.inside(end) for span in sequence.pictures)
                if live.layout.states is not None and end % PREFILL_STEP == 0 and not cuts_picture:
                    checkpointer.state(live.state_now("step"), wait=True)
                self._displace_states(live, checkpointer)
                sequence.holes |= checkpointer.holes
                written = checkpointer.bytes_written
        live.compact()
        return written

    def record_decode(self, sequence: Conversation, dropped: bool) -> int:
        """After a decode call: the block that it completed, unless the template will drop this part of the reply."""
        live = sequence.live
        assert live is not None
        written = 0
        if self.store is not None and self._planner is not None and live.length % BLOCK == 0 and not dropped:
            checkpointer = Checkpointer(self.store, live, sequence.name)
            checkpointer.blocks(live.length - BLOCK, live.length, wait=False)
            sequence.holes |= checkpointer.holes
            written = checkpointer.bytes_written
        live.compact()
        return written

    def _displace_states(self, live: LiveCache, checkpointer: Checkpointer) -> None:
        """Bound the states held by reference: the oldest is written, unless later anchors of its kind replaced it."""
        while len(live.states) > HELD_STATES or (len(live.states) > 2 and live.state_bytes > self._held_bytes):
            oldest = live.states.pop(0)
            if not superseded(oldest, live.states):
                checkpointer.state(oldest, wait=True)

    def abandon(self, sequence: Conversation) -> None:
        """After a failure: what was fed stays known, the live caches, in whatever state they are, are let go."""
        if sequence.live is not None:
            self.trie.add(sequence.live.ids)
        sequence.live = sequence.advance = None

    # -- end ---------------------------------------------------------------------------------------------------

    def end(self, sequence: Conversation) -> int:
        """Note what was fed, offer the holes again, pin what the next turn will go back to; bytes for the writer."""
        live = sequence.live
        assert live is not None
        written = self._refill(sequence, live)
        sequence.fed = np.array(live.ids, np.int32)
        self.trie.add(sequence.fed)
        if self._fed_ahead is not None:
            self.trie.add(self._fed_ahead)
            self._fed_ahead = None
        self._pin(sequence, sequence.fed[: sequence.stable], live.chain.keys[: sequence.stable // BLOCK + 1])
        return written

    def _refill(self, sequence: Conversation, live: LiveCache) -> int:
        """Offer the blocks that the writer could not take again; what it can't take now waits for the next turn."""
        if self.store is None or not sequence.holes:
            return 0
        checkpointer = Checkpointer(self.store, live, sequence.name)
        for block in sorted(sequence.holes):
            if (block + 1) * BLOCK <= live.length:
                checkpointer.blocks(block * BLOCK, (block + 1) * BLOCK, wait=False)
        sequence.holes = checkpointer.holes
        return checkpointer.bytes_written

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
        checkpointer = Checkpointer(self.store, live, sequence.name)
        for held in live.states:
            if not superseded(held, live.states):
                checkpointer.state(held, wait=True)
        ahead = sequence.advance
        if ahead is not None or not sequence.drops_reply:
            end = live.length if ahead is None else min(live.length, ahead.open)  # not the words of an unsent message
            checkpointer.blocks(0, end, wait=True)
            checkpointer.tail(end, wait=True)
            if live.layout.states is not None and end == live.length:
                checkpointer.state(live.state_now("parked"), wait=True)
        return checkpointer.bytes_written

    def forget(self, sequence: Conversation) -> int:
        """The conversation is deleted: free its memory and delete what only it used; how many records that was."""
        sequence.live = sequence.advance = None
        self.unpin(sequence)
        return self.store.leave(sequence.name) if self.store is not None else 0

    def drop_live(self, sequence: Conversation) -> int:
        """Park, then free the memory."""
        written = self.park(sequence)
        sequence.live = sequence.advance = None
        sequence.holes = set()
        return written


def superseded(held: HeldState, states: list[HeldState]) -> bool:
    """Whether four later anchors of the same kind are held: edits reach that far back, rewinds never do."""
    return sum(other.kind == held.kind and other.position > held.position for other in states) >= 4
