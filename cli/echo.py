"""Keys pressed while the model works: kept for the next prompt, not shown in the middle of the answer."""

from __future__ import annotations

import termios
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL_FLAGS = 3


@contextmanager
def unechoed(descriptor: int = 0) -> Iterator[None]:
    """Within it the terminal at `descriptor` shows no keys by itself; prompt-toolkit shows those of its prompt."""
    try:
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError):  # no terminal: nothing echoes
        yield
        return
    silent = [*before]
    silent[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
