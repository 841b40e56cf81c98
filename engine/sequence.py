"""A conversation as the engine sees it between requests: what it holds in memory and what was last said in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from ..cache.index import Entry
from ..cache.keys import Ids
from ..cache.trie import common_prefix
from .hit_rate import MissReason
from .image_spans import ImageSpan
from .messages import Message
from .options import RequestOptions
from .stats import Divergence, RequestStats

if TYPE_CHECKING:
    from ..cache.live import LiveCache

_NO_IDS: Ids = np.empty(0, np.int32)


@dataclass
class Advance:
    """What was fed before its request came: positions [start, open) ahead of the user's words, the rest as they typed.

    before   positions held when it began
    cost     what the restore at its start was, by the fields of the request that will follow
    """

    before: int
    start: int
    open: int
    cost: RequestStats

    def tell(self, stats: RequestStats, position: int) -> None:
        """Fill in what it was worth to a request that goes on from `position`, past `start`: tokens are told apart."""
        cost = self.cost
        stats.idle_prefill_tokens = min(position, self.open) - self.start
        stats.typeahead_prefill_tokens = max(0, position - max(self.open, self.start))
        stats.restore_kind = cost.restore_kind
        stats.restore_ms, stats.restore_bytes = cost.restore_ms, cost.restore_bytes
        stats.cached_disk_tokens = cost.cached_disk_tokens
        stats.cached_live_tokens = self.start - cost.cached_disk_tokens
        stats.checkpoint_bytes += cost.checkpoint_bytes
        stats.images_encoded += cost.images_encoded
        stats.image_features_reused += cost.image_features_reused


@dataclass
class Sequence:
    """Everything per conversation; nothing of it lives on the engine or on the model object.

    number         names the sequence in the call log
    name           names the conversation in the store; empty: its records belong to nobody
    date           the day that templates may name, the same for the whole conversation
    live           its KV in memory; None before the first request and after parking
    messages       the messages of the last request, its reply included
    fed            the elements that the last request left in the caches (ids, but pictures by what they show)
    pictures       the pictures of the last prompt
    system_end     where system and tools end in the last prompt
    stable         the last prompt's stable prefix: where a template that drops reasoning will diverge
    scaffold       [start, end) of what the last generation prompt opened behind the header of the model's turn
    drops_reply    whether the template will drop part of the last reply, so that its end is not worth keeping
    advance        what was fed ahead of the next request; its end is not worth keeping
    pins           for each of the last turns, the records that eviction must not take
    holes          blocks of `live` that the writer could not take, to be offered again
    options        what the last request asked for besides its messages
    used_at        when the last request began or ended, on the engine's clock
    offered        whether the disk has been offered all of it since
    """

    number: int
    name: str = ""
    live: LiveCache | None = None
    date: str = field(default_factory=lambda: date.today().isoformat())
    messages: tuple[Message, ...] = ()
    fed: Ids = field(default_factory=lambda: _NO_IDS)
    pictures: Several[ImageSpan] = ()
    system_end: int = 0
    stable: int = 0
    scaffold: tuple[int, int] = (0, 0)
    drops_reply: bool = False
    advance: Advance | None = None
    pins: deque[list[Entry]] = field(default_factory=deque)
    holes: set[int] = field(default_factory=set)
    options: RequestOptions | None = None
    used_at: float = 0.0
    offered: bool = False

    def divergence(self, prompt: Ids, messages: tuple[Message, ...], pictures: Several[ImageSpan] = ()) -> Divergence:
        """How the new prompt (elements) departs from what this conversation last fed."""
        if not len(self.fed):
            return "first"
        common = common_prefix(prompt, self.fed)
        if common == len(self.fed):
            return "append"
        if not messages:  # a trace of ids alone
            return "other"
        if _shows(pictures, common) and _shows(self.pictures, common):
            return "image_changed"
        if common < self.system_end or _system(messages) != _system(self.messages):
            return "system_or_tools_changed"
        if messages[: len(self.messages)] != self.messages:
            return "history_edited"
        if (self.drops_reply and common >= self.stable) or self.scaffold[0] <= common < self.scaffold[1]:
            return "reasoning_dropped"
        return "retokenized"

    @property
    def repeated(self) -> int:
        """How much of what was fed last an untouched next prompt begins with, in tokens."""
        return min(self.stable, len(self.fed)) if self.drops_reply else len(self.fed)

    def what_changed(self, options: RequestOptions, messages: tuple[Message, ...]) -> MissReason:
        """Why the beginning of a prompt may differ from the last one's."""
        if self.options is not None and options.tools != self.options.tools:
            return "tools_changed"
        return "system_changed" if _system(messages) != _system(self.messages) else "template_changed"


def _shows(pictures: Several[ImageSpan], position: int) -> bool:
    return any(span.start <= position < span.end for span in pictures)


def _system(messages: tuple[Message, ...]) -> list[Message]:
    return [message for message in messages if message.role == "system"]
