"""What of a live sequence is written, and when: after a prefill call, after a decode call, before it is let go."""

from __future__ import annotations

from ..cache.checkpoint import Checkpointer
from ..cache.keys import BLOCK
from ..cache.live import HeldState, LiveCache
from ..cache.memory import default_held_bytes
from ..cache.store import Store
from .cuts import PREFILL_STEP
from .sequence import Sequence

HELD_STATES = 8  # recurrent states kept by reference per sequence (and bytes of them, from what memory there is,
# unless that would leave fewer than two); older ones go to disk or are let go


class Checkpoints:
    """Engine thread only. Every method returns the bytes handed to the writer; `store` None: always 0.

    shares   other conversations run beside: what they may have in common, system and tools, is written at once
    """

    def __init__(self, store: Store | None, *, shares: bool = False) -> None:
        self._store = store
        self._shares = shares
        self._held_bytes = default_held_bytes()

    def after_prefill(self, sequence: Sequence, start: int, end: int, kind: str | None, tail: bool) -> int:
        """Of a call [start, end): its blocks, the state if there is a `kind` of mark, with `tail` the rows left over.

        The rows of every anchor of this prompt lie in its whole blocks or in the last tail, wherever others end.
        """
        live = sequence.live
        assert live is not None
        if kind is not None:
            live.hold_state(kind)
        if self._store is None:
            return 0
        checkpointer = Checkpointer(self._store, live, sequence.name)
        checkpointer.blocks(start, end, wait=True)
        if tail:
            checkpointer.tail(end, wait=True)
        if self._shares and kind == "system_end" and live.layout.states is not None:
            checkpointer.state(live.state_now(kind), wait=True)
        cuts_picture = any(span.inside(end) for span in sequence.pictures)
        if live.layout.states is not None and end % PREFILL_STEP == 0 and not cuts_picture:
            checkpointer.state(live.state_now("step"), wait=True)
        self._displace_states(live, checkpointer)
        sequence.holes |= checkpointer.holes
        return checkpointer.bytes_written

    def after_decode(self, sequence: Sequence) -> int:
        """The block that the call completed. Never waits: what the writer can't take is a hole to be refilled."""
        live = sequence.live
        assert live is not None
        if self._store is None or live.length % BLOCK:
            return 0
        checkpointer = Checkpointer(self._store, live, sequence.name)
        checkpointer.blocks(live.length - BLOCK, live.length, wait=False)
        sequence.holes |= checkpointer.holes
        return checkpointer.bytes_written

    def adopted(self, sequence: Sequence, start: int, end: int) -> int:
        """The blocks of words that were typed, now that they are sent."""
        if self._store is None or sequence.live is None:
            return 0
        checkpointer = Checkpointer(self._store, sequence.live, sequence.name)
        checkpointer.blocks(start, end, wait=True)
        return checkpointer.bytes_written

    def _displace_states(self, live: LiveCache, checkpointer: Checkpointer) -> None:
        """Bound the states held by reference: the oldest is written, unless later anchors of its kind replaced it."""
        while len(live.states) > HELD_STATES or (len(live.states) > 2 and live.state_bytes > self._held_bytes):
            oldest = live.states.pop(0)
            if not superseded(oldest, live.states):
                checkpointer.state(oldest, wait=True)

    def refill(self, sequence: Sequence) -> int:
        """Offer the blocks that the writer could not take again; what it can't take now waits for the next turn."""
        live = sequence.live
        if self._store is None or live is None or not sequence.holes:
            return 0
        checkpointer = Checkpointer(self._store, live, sequence.name)
        for block in sorted(sequence.holes):
            if (block + 1) * BLOCK <= live.length:
                checkpointer.blocks(block * BLOCK, (block + 1) * BLOCK, wait=False)
        sequence.holes = checkpointer.holes
        return checkpointer.bytes_written

    def park(self, sequence: Sequence) -> int:
        """What is needed to come back to the live sequence once its memory is freed.

        A reply that the template will drop is not written: nothing will ever go back to its end. What the disk didn't
        take of the prompt before it is.
        """
        live = sequence.live
        if live is None or self._store is None or live.length == 0:
            return 0
        checkpointer = Checkpointer(self._store, live, sequence.name)
        for held in live.states:
            if not superseded(held, live.states):
                checkpointer.state(held, wait=True)
        end = self.kept_end(sequence, live)
        checkpointer.blocks(0, end, wait=True)
        checkpointer.tail(end, wait=True)
        is_kept = sequence.advance is not None or not sequence.drops_reply
        if is_kept and live.layout.states is not None and end == live.length:
            checkpointer.state(live.state_now("parked"), wait=True)
        return checkpointer.bytes_written

    @staticmethod
    def kept_end(sequence: Sequence, live: LiveCache) -> int:
        """Up to where a live sequence is worth keeping: not the words of an unsent message, nor a reply that drops."""
        if sequence.advance is not None:
            return min(live.length, sequence.advance.open)
        return min(live.length, sequence.stable) if sequence.drops_reply else live.length


def superseded(held: HeldState, states: list[HeldState]) -> bool:
    """Whether four later anchors of the same kind are held: edits reach that far back, rewinds never do."""
    return sum(other.kind == held.kind and other.position > held.position for other in states) >= 4
