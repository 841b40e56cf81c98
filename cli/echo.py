"""Keys pressed while the model works: kept for the next prompt as they are, not shown in the middle of the answer."""

from __future__ import annotations

import termios
from collections.abc import Iterator
from contextlib import contextmanager

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3


@contextmanager
def unechoed(descriptor: int = 0, *, signals: bool = True) -> Iterator[None]:
    """Within it the terminal at `descriptor` shows no keys by itself; prompt-toolkit shows those of its prompt.

    Nor does it make a newline of Enter: at the next prompt that would be one within the text, and nothing be sent.
    Ctrl-D leaves at the next prompt: a terminal that gathers lines would swallow it. And Ctrl-C drops nothing of what
    was typed.

    signals   whether Ctrl-C interrupts; else it is a key like the others
    """
    try:
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError):  # no terminal: nothing echoes
        yield
        return
    silent = [*before]
    off = termios.ECHO | termios.ICANON | (0 if signals else termios.ISIG)
    silent[_LOCAL_FLAGS] = silent[_LOCAL_FLAGS] & ~off | termios.NOFLSH
    silent[_INPUT_FLAGS] &= ~termios.ICRNL
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
