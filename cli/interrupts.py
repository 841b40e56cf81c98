"""Ctrl-C while the model works: the first one stops it and keeps what it said."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.chat import Chat


@contextmanager
def stopping(chat: Chat, leave_on_second: bool = True) -> Iterator[None]:
    """Within it SIGINT calls `chat.stop()`. A second one raises KeyboardInterrupt, or just stops again."""
    pressed = 0

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1 and leave_on_second:
            raise KeyboardInterrupt
        chat.stop()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
