"""Host buffers in which records wait for the writer, used again and again.

Memory that is fresh from the system has to be cleared page by page, which can cost more than the copy into it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

_STEP: Final = 64 * 1024
_SMALLEST: Final = 256 * 1024  # below it the allocator itself keeps memory warm


class BufferPool:
    """Any thread. At most `limit` bytes lie idle here; a buffer comes back when nobody refers to any part of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle: list[bytearray] = []
        self._returned: deque[bytearray] = deque()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """An array of `nbytes`, its contents arbitrary."""
        if nbytes < _SMALLEST:
            return np.empty(nbytes, np.uint8)
        with self._lock:
            self._settle()
            fitting = [one for one in self._idle if nbytes <= len(one) <= 2 * nbytes]
            if fitting:
                raw = min(fitting, key=len)
                self._idle = [one for one in self._idle if one is not raw]
            else:
                raw = bytearray(-(-nbytes // _STEP) * _STEP)
        array = np.frombuffer(raw, np.uint8, nbytes)
        # A finalizer may run anywhere, under the lock too: it only appends.
        weakref.finalize(array, self._returned.append, raw)
        return array

    def clear(self) -> None:
        """Let the system have what lies idle."""
        with self._lock:
            self._returned.clear()
            self._idle.clear()

    @property
    def idle_bytes(self) -> int:
        """Bytes that lie here for the next record."""
        with self._lock:
            self._settle()
            return sum(map(len, self._idle))

    def _settle(self) -> None:
        """Take in what came back; the oldest make room."""
        while self._returned:
            self._idle.append(self._returned.popleft())
        while sum(map(len, self._idle)) > self._limit:
            del self._idle[0]
