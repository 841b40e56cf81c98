"""Which request of a replay may go next: lanes side by side, and the requests of one lane one after another.

A lane is a conversation with all that was started from it: a sub-agent runs while its parent waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .planned import Planned


class Lanes:
    """What is still to run. Times are seconds since the run began.

    real_time   a lane rests after each request for as long as its tools took
    """

    def __init__(self, planned: Sequence[Planned], real_time: bool = False) -> None:
        self._real_time = real_time
        self._left: dict[str, deque[Planned]] = {}
        self._ready_at: dict[str, float] = {}
        self._busy: set[str] = set()
        for one in planned:
            self._left.setdefault(one.job.lane, deque()).append(one)
        self.count = len(self._left)

    @property
    def done(self) -> bool:
        """Whether nothing is left to take."""
        return not self._left

    def take(self, now: float) -> Planned | None:
        """The first request, in the transcript's order, of a lane that neither runs nor rests; None: there is none."""
        free = [lane for lane in self._left if lane not in self._busy and self.ready_at(lane) <= now]
        if not free:
            return None
        lane = min(free, key=lambda one: self._left[one][0].job.number)
        taken = self._left[lane].popleft()
        self._busy.add(lane)
        self._tidy(lane)
        return taken

    def ready_at(self, lane: str) -> float:
        """When its last request had ended and its tools were done; 0 before the first."""
        return self._ready_at.get(lane, 0.0)

    def pause(self, now: float) -> float | None:
        """Seconds until the next lane has rested; None if no lane rests."""
        resting = [self.ready_at(lane) - now for lane in self._left if lane not in self._busy]
        return max(0.0, min(resting)) if resting else None

    def ended(self, planned: Planned, now: float) -> None:
        """What was taken has ended, or didn't run (then nothing is waited for)."""
        lane, ran = planned.job.lane, planned.outcome == "run"
        self._busy.discard(lane)
        self._ready_at[lane] = now + (planned.job.delay_ms / 1000 if self._real_time and ran else 0.0)

    def give_up(self, planned: Planned) -> list[Planned]:
        """What was taken has failed: the rest of its lane, which will not run."""
        self._busy.discard(planned.job.lane)
        return list(self._left.pop(planned.job.lane, ()))

    def _tidy(self, lane: str) -> None:
        if not self._left[lane]:
            del self._left[lane]
