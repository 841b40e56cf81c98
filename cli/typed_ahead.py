"""Keys pressed while the model works: some are acted on at once, the rest waits for the next prompt."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from .typed_keys import PASTE_BEGINS, in_paste, waiting

CTRL_O = b"\x0f"
_PASTES_MARKED, _PASTES_UNMARKED = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_PAUSE_S = 0.5  # a terminal leaves no such gap within a paste
_CHUNK = 4096


class TypedAhead:
    """Reads the keyboard, from `start` to `stop`, on a thread of its own; `cli/echo` sees that nothing shows the keys.

    write   puts text on the terminal: pastes are to come marked, so that no line of one is taken for Enter
    """

    def __init__(self, write: Callable[[str], object], descriptor: int = 0) -> None:
        self._write = write
        self._descriptor = descriptor
        self._held = b""
        self._on_reasoning: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    def gather(self) -> None:
        """Take what was typed before the terminal was told to leave Enter alone: there it is a newline."""
        if os.isatty(self._descriptor):
            self._held += waiting(self._descriptor).replace(b"\n", b"\r")

    def start(self, on_reasoning: Callable[[], None]) -> None:
        """Begin to read, unless it has begun or there is no terminal. `on_reasoning` is called at Ctrl-O."""
        if self._thread is not None or not os.isatty(self._descriptor):
            return
        self._on_reasoning = on_reasoning
        self._wake = os.pipe()
        self._write(_PASTES_MARKED)
        self._thread = threading.Thread(target=self._read, args=(self._wake[0],), name="keys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; whoever reads next gets every key that comes from now on."""
        if self._thread is None or self._wake is None:
            return
        os.write(self._wake[1], b".")
        self._thread.join()
        self._finish_paste()
        for end in self._wake:
            os.close(end)
        self._thread = self._wake = None
        self._write(_PASTES_UNMARKED)

    def take(self) -> str:
        """What was typed and not acted on; it is held no longer."""
        held, self._held = self._held, b""
        return held.decode("utf-8", "replace")

    def _read(self, wake: int) -> None:
        while True:
            try:
                ready = select.select([self._descriptor, wake], [], [])[0]
                if wake in ready:
                    return
                data = os.read(self._descriptor, _CHUNK)
            except OSError:
                return
            if not data:
                return
            self._take_in(data)

    def _finish_paste(self) -> None:
        """Take all of a paste that has begun: the prompt would read its rest as typed lines, and send each of them."""
        try:
            while in_paste(self._held) and select.select([self._descriptor], [], [], _PASTE_PAUSE_S)[0]:
                data = os.read(self._descriptor, _CHUNK)
                if not data:
                    return
                self._take_in(data)
        except OSError:
            return

    def _take_in(self, data: bytes) -> None:
        if CTRL_O in data and not in_paste(self._held) and PASTE_BEGINS not in data:
            presses = data.count(CTRL_O)
            data = data.replace(CTRL_O, b"")
            for _ in range(presses):
                self._on_reasoning()
        self._held += data
