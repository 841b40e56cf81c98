"""How far a prompt has been read: what was reused in one shade, what is new in another."""

from __future__ import annotations

import math

from ..engine.events import PrefillProgress
from .stats_line import speed

SHOWN_AFTER_S = 0.3
_CACHED, _NEW, _LEFT = "▒", "█", "░"
_WIDEST = 30
_NARROWEST = 6


class PrefillBar:
    """One prompt's progress. Times are seconds of any clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._first: PrefillProgress | None = None
        self._last = PrefillProgress(0, 0, 0)
        self._last_at = now

    def progress(self, event: PrefillProgress, now: float) -> None:
        """So much has been read."""
        self._first = self._first or event
        self._last, self._last_at = event, now

    def is_due(self, now: float) -> bool:
        """Whether somebody has waited long enough to be told."""
        return self._last.done < self._last.total and now - self._began >= SHOWN_AFTER_S

    def line(self, now: float, width: int) -> str:
        """The bar and its numbers, as many of them as fit into `width` cells."""
        done, total, cached = self._last.done, self._last.total, self._last.cached
        parts = [f"{done:,} of {total:,} tokens", f"{cached:,} reused" if cached else "", *self._pace(now)]
        parts = [part for part in parts if part]
        while len(parts) > 1 and len(_joined(parts)) + _NARROWEST + 1 >= width:
            del parts[1]
        words = _joined(parts)
        room = min(_WIDEST, width - len(words) - 2)
        return f"{self._bar(room)} {words}" if room >= _NARROWEST else words[: max(1, width - 1)]

    def _bar(self, cells: int) -> str:
        total = max(1, self._last.total)
        cached = math.floor(cells * self._last.cached / total)
        new = math.floor(cells * self._last.done / total) - cached
        return _CACHED * cached + _NEW * new + _LEFT * (cells - cached - new)

    def _pace(self, now: float) -> list[str]:
        """Tokens per second so far, and how long the rest takes at that."""
        assert self._first is not None
        read, took = self._last.done - self._first.done, self._last_at - self._began
        if read <= 0 or took <= 0:
            return [f"{now - self._began:.0f} s"]
        rate = read / took
        left = max(0.0, (self._last.total - self._last.done) / rate - (now - self._last_at))
        return [f"{speed(rate)} tok/s", f"{math.ceil(left)} s left"]


def plain_line(event: PrefillProgress) -> str:
    """The same for a terminal that can't take a line back."""
    reused = f" ({event.cached:,} reused)" if event.cached else ""
    return f"reading {event.total:,} tokens{reused} …"


def _joined(parts: list[str]) -> str:
    return " · ".join(parts)
