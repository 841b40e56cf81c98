"""What an MCP server writes on its stderr: kept in a file of bounded size, never shown."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TextIO

from ..sanitize import sanitize

MOST_BYTES = 1 << 20
_LINE = 200
_LAG_S = 0.3  # for the thread to read what is left


class ServerLog:
    """One start of a server. `path` None keeps no file; a file that can't be written costs nothing but itself."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        reading, writing = os.pipe()
        self._stream = os.fdopen(writing, "w")
        self._last = b""
        self._thread = threading.Thread(target=self._keep, args=(reading,), name="server log", daemon=True)
        self._thread.start()

    @property
    def stream(self) -> TextIO:
        """For the server's stderr."""
        return self._stream

    def close(self) -> None:
        """Our end of it; the server's stays as long as the server does."""
        self._stream.close()

    def last_words(self) -> str:
        """The last line so far; "" if it said nothing. Waits a moment for those of a server that is just ending."""
        self.close()
        self._thread.join(_LAG_S)
        lines = self._last.decode("utf-8", "replace").strip().splitlines()
        return " ".join(sanitize(lines[-1]).split())[:_LINE] if lines else ""

    def _keep(self, reading: int) -> None:
        """Read to the end, also past what is kept: a server must not come to a stop on a full pipe."""
        file, room = self._open(), MOST_BYTES
        while chunk := os.read(reading, 1 << 16):
            self._last = (self._last + chunk)[-4 * _LINE :]
            if file is not None and room > 0:
                try:
                    os.write(file, chunk[:room])
                except OSError:
                    room = 0
                room -= len(chunk)
        os.close(reading)
        if file is not None:
            os.close(file)

    def _open(self) -> int | None:
        if self.path is None:
            return None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        except OSError:
            return None
