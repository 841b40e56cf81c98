"""A recorded reply on its way into the caches, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from ..cache.keys import BLOCK
from ..cache.live import LiveCache
from .recorded import Feed, ReplyIds
from .runner import ModelRunner

if TYPE_CHECKING:
    from .request import Run


class Feeding:
    """The ids left to feed. `mismatched` as in ReplyIds; `cut` says that the context was too short for all of them."""

    def __init__(self, reply: ReplyIds, feed: Feed, room: int) -> None:
        self.mismatched = reply.mismatched
        self.one_by_one = feed == "decode"
        self.cut = len(reply.ids) > room
        self._ids = reply.ids[:room]
        self._fed = 0

    def take(self, position: int) -> tuple[int, ...]:
        """The ids of the next call, which begins at `position`; none at the end."""
        size = 1 if self.one_by_one else BLOCK - position % BLOCK
        ids = self._ids[self._fed : self._fed + size]
        self._fed += len(ids)
        return ids

    def step(self, run: Run, runner: ModelRunner, live: LiveCache) -> bool:
        """Feed the next block's ids as a reply of `run`; False if there are none left."""
        ids = self.take(live.length)
        if not ids:
            return False
        runner.forward(run.request.number, run.sequence.number, live, live.length, mx.array(ids, mx.uint32))
        runner.settle(live)
        mx.clear_cache()
        live.append(ids)
        for token in ids:
            run.accept(token)
        return True
