"""Draws what has changed, at most so many times a second, also while nothing new comes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import MlxchatError

INTERVAL_S = 0.05
"""Twenty updates a second: more can't be read, and the model needs the processor."""


class Ticker:
    """Calls `tick` every INTERVAL_S on a thread of its own, from `start` to `stop`."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: OSError | MlxchatError | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End; no tick is under way afterwards. Not to be called by a tick."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Raise what a tick raised: a terminal that is gone."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            while not self._ended.wait(INTERVAL_S):
                self._tick()
        except (OSError, MlxchatError) as failure:
            self._failure = failure
