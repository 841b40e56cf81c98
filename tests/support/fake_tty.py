"""A text stream that says it is a terminal."""

from __future__ import annotations

import io


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True
