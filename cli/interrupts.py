"""Ctrl-C while the model works: the first one stops it and keeps what it said."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """Whatever works until it is told to stop: a chat's turn, a replay."""

    def stop(self) -> None:
        """End it soon. Called from a signal handler."""


SAME_PRESS_S = 0.3
"""One press can come twice: to the program, and to its process group through whatever started it."""


@contextmanager
def stopping(
    work: Stoppable, leave_on_second: bool = True, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Within it SIGINT calls `work.stop()`. A second one raises KeyboardInterrupt, or just stops again."""
    first: float | None = None

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal first
        now = clock()
        if first is None:
            first = now
        elif leave_on_second and now - first >= SAME_PRESS_S:
            raise KeyboardInterrupt
        work.stop()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def unheard() -> Iterator[None]:
    """Within it SIGINT does nothing: for the few lines that must be written once a run is broken off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
