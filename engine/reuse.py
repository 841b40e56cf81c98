"""What an engine can reuse: the store, the planner and the trie of one namespace, behind three calls of a turn.

begin    before prefill: rewinds or restores the sequence's live cache to the largest possible position
record   after each call: checkpoints what the call completed
end      after the reply: notes what was fed, pins what the next turn will need
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..cache.keys import BLOCK, Ids
from ..cache.layers import Layout
from ..cache.live import LiveCache
from ..cache.memory import Memory
from ..cache.planner import Plan
from ..cache.store import Store
from ..cache.trie import SequenceTrie, common_prefix
from .checkpoints import Checkpoints
from .image_spans import ImageSpan
from .marks import BRANCHES
from .parking import Parking
from .restorer import Restorer
from .sequence import Advance
from .sequence import Sequence as Conversation
from .stats import RequestStats

PINNED_TURNS = 2  # of the current conversation: their anchors are not evicted


class Reuse:
    """Engine thread only. `store` None: nothing is written, live sequences are still rewound in memory.

    `shares`: other conversations run beside.
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
        shares: bool = False,
    ) -> None:
        self.store = store
        self.trie = SequenceTrie()
        self.layout = layout
        self._make_caches = make_caches
        self._namespace = namespace
        self._restorer: Restorer | None = None
        if layout is not None and not off:
            memory = memory if memory is not None else Memory()
            self._restorer = Restorer(store, layout, namespace, memory, self.fresh, self._keep_branch)
        self._checkpoints = Checkpoints(store if self._restorer is not None else None, shares=shares)
        self.parking = Parking(self.store, self._restorer, self._checkpoints)
        self._fed_ahead: Ids | None = None
        self._why_off = "off" if off else "unsupported_class"

    @property
    def works(self) -> bool:
        """Whether anything is reused at all."""
        return self._restorer is not None

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
        if self._restorer is None:
            stats.shortfall_reason = self._why_off if stats.common_prefix_tokens else "none"  # type: ignore[assignment]
            sequence.live = self.fresh()
        else:
            sequence.live = self._restorer.restored(sequence, ids, len(ids) - 1, stats, pictures)
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

    def _keep_branch(self, sequence: Conversation, plan: Plan) -> None:
        """Before a branch is left that one may come back to (an edit, a retry): park it."""
        live = sequence.live
        if live is None or sequence.advance is not None:
            return
        if plan.position < (sequence.stable if sequence.drops_reply else live.length):
            self.parking.park(sequence)

    # -- ahead of a request ------------------------------------------------------------------------------------

    def waiting(self, sequence: Conversation, ids: Ids) -> int:
        """How many of `ids` the live sequence doesn't hold; 0 where nothing would be reused anyway."""
        if self._restorer is None:
            return 0
        return len(ids) - (common_prefix(ids, sequence.live.ids) if sequence.live is not None else 0)

    def reach(self, ids: Ids, live: LiveCache | None, pictures: Sequence[ImageSpan] = ()) -> int:
        """How many of `ids` (elements) a request would reuse now, at most all but the last. Nothing is touched."""
        if self._restorer is None or not len(ids):
            return 0
        return self._restorer.reach(ids, live, len(ids) - 1, pictures)

    def begin_ahead(self, sequence: Conversation, ids: Ids, open_at: int, pictures: Sequence[ImageSpan] = ()) -> int:
        """Put the sequence as far along `ids` (elements), which a coming prompt will begin with, as it can be restored.

        Returns that position, which may be all of `ids`. What it cost is told with the request that follows.
        """
        before, cost = sequence.live.length if sequence.live is not None else 0, RequestStats()
        assert self._restorer is not None
        sequence.live = self._restorer.restored(sequence, ids, len(ids), cost, pictures)
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
        tail = tail or kind in BRANCHES
        written = self.record_prefill(sequence, start, end, kind, tail)
        if sequence.advance is not None:
            sequence.advance.cost.checkpoint_bytes += written

    def _adopt(self, sequence: Conversation, advance: Advance, position: int, stats: RequestStats) -> None:
        """The request goes on where the work ahead of it ended: what was typed is written now."""
        advance.tell(stats, position)
        if stats.typeahead_prefill_tokens:
            stats.checkpoint_bytes += self._checkpoints.adopted(sequence, advance.open, position)

    # -- record ------------------------------------------------------------------------------------------------

    def record_prefill(self, sequence: Conversation, start: int, end: int, kind: str | None, tail: bool) -> int:
        """After a prefill call [start, end), which ends at a mark of `kind` if there is one. Bytes for the writer.

        tail   the rows since the last block edge are kept here, too
        """
        assert sequence.live is not None
        written = 0
        if self._restorer is not None:
            written = self._checkpoints.after_prefill(sequence, start, end, kind, tail)
        sequence.live.compact()
        return written

    def record_decode(self, sequence: Conversation, dropped: bool) -> int:
        """After a decode call: the block that it completed, unless the template will drop this part of the reply."""
        assert sequence.live is not None
        written = 0 if dropped else self._checkpoints.after_decode(sequence)
        sequence.live.compact()
        return written

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
        written = self._checkpoints.refill(sequence)
        sequence.fed = np.array(live.ids, np.int32)
        self.trie.add(sequence.fed)
        if self._fed_ahead is not None:
            self.trie.add(self._fed_ahead)
            self._fed_ahead = None
        self._pin(sequence, sequence.fed[: sequence.stable], live.chain.keys[: sequence.stable // BLOCK + 1])
        return written

    def _pin(self, sequence: Conversation, stable: Ids, keys: list[bytes]) -> None:
        """Keep from eviction what restores the stable prefixes of the last turns."""
        if self.store is None or self._restorer is None or not len(stable):
            return
        sequence.pins.append(self._restorer.planner.plan(stable, keys, None, len(stable), 0, sequence.pictures).entries)
        while len(sequence.pins) > PINNED_TURNS:
            self.store.unpin(sequence.pins.popleft())

    def unpin(self, sequence: Conversation) -> None:
        """The conversation is no longer the current one: its records may be evicted."""
        while self.store is not None and sequence.pins:
            self.store.unpin(sequence.pins.popleft())

    def forget(self, sequence: Conversation) -> int:
        """The conversation is deleted: free its memory and delete what only it used; how many records that was."""
        sequence.live = sequence.advance = None
        self.unpin(sequence)
        return self.store.leave(sequence.name) if self.store is not None else 0
