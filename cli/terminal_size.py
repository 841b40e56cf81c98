"""How large the terminal is at this moment."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

_FALLBACK = os.terminal_size((80, 24))


def size_of(stream: TextIO) -> os.terminal_size:
    """Columns and lines of the terminal that `stream` is; of what the environment says where it is none."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = shutil.get_terminal_size(_FALLBACK)
    return size if size.columns > 0 and size.lines > 0 else _FALLBACK
