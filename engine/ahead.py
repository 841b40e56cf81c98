"""What can be asked of the engine before a request comes: plain data, without MLX."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import date

from ..cache.keys import Ids
from .image_spans import ImageSpan
from .messages import Message
from .options import RequestOptions


@dataclass
class AheadRequest:
    """Asks the engine to get ready for the next request of a conversation. `done` is set when nothing is left to do.

    draft   the message as far as it is typed; None: up to where the user's own words will begin
    least   do nothing unless at least so many tokens are waiting
    day     ISO, what templates may name as today; settles it if this comes before the conversation's first request
    """

    number: int
    conversation: str
    messages: tuple[Message, ...]
    options: RequestOptions
    draft: Message | None = None
    least: int = 1
    day: str = field(default_factory=lambda: date.today().isoformat())
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Preview:
    """The ids that a coming prompt is sure to begin with.

    ids       int32; all that is settled
    open      how many of them stand before the user's own words
    marks     positions in them, ascending, with the kind of anchor that a request has there
    pictures  those that stand in them; `whole` if one call must feed each
    """

    ids: Ids
    open: int
    marks: dict[int, str]
    pictures: tuple[ImageSpan, ...] = ()
    whole: bool = False
