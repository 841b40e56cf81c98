"""Show a download or a conversion on stderr: one line that counts on a terminal, one line per step elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_MIN_SECONDS = 0.1


class DownloadProgress:
    """Call it with (what, bytes done, bytes in all or 0); use it as a context so that the line gets its end."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._step = ""
        self._drawn_at = 0.0
        self._open = False

    def __enter__(self) -> DownloadProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report a step."""
        if what != self._step:
            self._end_line()
            self._step = what
            self._drawn_at = 0.0
            if not self._live:
                self._stream.write(f"{what} …\n")
                self._stream.flush()
        if not self._live:
            return
        now = time.monotonic()
        if now - self._drawn_at >= _MIN_SECONDS or (total and done >= total):
            self._drawn_at = now
            share = f" {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({100 * done // total} %)" if total else " …"
            self._stream.write(f"\r\x1b[K{what}{share}")
            self._stream.flush()
            self._open = True

    def _end_line(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False
