"""What has been typed at a terminal and not been read, and the keys in it."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPress

PASTE_BEGINS, PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
_CHUNK = 4096


def waiting(descriptor: int) -> bytes:
    """Everything that has been typed and not been read."""
    found = b""
    try:
        while select.select([descriptor], [], [], 0)[0] and (chunk := os.read(descriptor, _CHUNK)):
            found += chunk
    except OSError:
        pass
    return found


def in_paste(typed: bytes) -> bool:
    """Whether a paste has begun and its end hasn't come."""
    return typed.rfind(PASTE_BEGINS) > typed.rfind(PASTE_ENDS)


def keys_in(typed: str) -> list[KeyPress]:
    """The keys that a terminal meant by what it sent. A paste without an end goes up to the end of what there is."""
    from prompt_toolkit.input.vt100_parser import Vt100Parser

    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed(typed + PASTE_ENDS.decode() if in_paste(typed.encode()) else typed)
    parser.flush()
    return keys
