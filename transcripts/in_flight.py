"""Several requests on one engine at once, heard through one queue: whoever sends them waits for the first to end."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..engine.engine import Engine
from ..engine.events import Event, Notice, PrefillProgress, TurnDone, TurnFailed
from ..engine.request import Request

_WAKE = -1


@dataclass(frozen=True)
class Ended:
    """A request's last event. Times are of time.perf_counter.

    sent       when it was submitted; prefilling: when the engine took it up, None if it never did
    ended      when its last event came
    """

    request: Request
    event: TurnDone | TurnFailed
    sent: float
    prefilling: float | None
    ended: float


class _Tagged(queue.SimpleQueue[Event]):
    """A request's events, put into a queue that is shared, with the request's number."""

    def __init__(self, shared: queue.SimpleQueue[tuple[int, Event | None]], number: int) -> None:
        self._shared = shared
        self._number = number

    def put(self, item: Event, block: bool = True, timeout: float | None = None) -> None:
        """Hand it on."""
        self._shared.put((self._number, item))


@dataclass
class _Sent:
    request: Request
    at: float
    prefilling: float | None = None
    prefilled: bool = False


class InFlight:
    """The requests under way. Used from one thread; `stop` and `wake` from any, and from signal handlers.

    on_notice   gets the lines that the engine has for the user, with the request that they are about
    """

    def __init__(self, engine: Engine, on_notice: Callable[[Request, str], None] = lambda request, text: None) -> None:
        self._engine = engine
        self._on_notice = on_notice
        self._heard: queue.SimpleQueue[tuple[int, Event | None]] = queue.SimpleQueue()
        self._sent: dict[int, _Sent] = {}
        self._stopped = False

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, request: Request) -> None:
        """Submit a request; its events come here. After `stop` it is submitted as one that was cancelled."""
        request.events = _Tagged(self._heard, request.number)
        self._sent[request.number] = _Sent(request, time.perf_counter())
        if self._stopped:
            request.cancelled.set()
        self._engine.submit(request)

    def prefilled(self, number: int) -> bool:
        """Whether the whole prompt of a request is in its caches; True for one that has ended."""
        return number not in self._sent or self._sent[number].prefilled

    def next(self, timeout: float | None = None) -> Ended | None:
        """The next end of a request. None: a prompt is prefilled, `wake` was called, or `timeout` seconds went by."""
        deadline = None if timeout is None else time.perf_counter() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            try:
                number, event = self._heard.get(timeout=left)
            except queue.Empty:
                return None
            sent = self._sent.get(number)
            if sent is None:
                return None
            if isinstance(event, TurnDone | TurnFailed):
                del self._sent[number]
                return Ended(sent.request, event, sent.at, sent.prefilling, time.perf_counter())
            if isinstance(event, Notice):
                self._on_notice(sent.request, event.text)
            elif isinstance(event, PrefillProgress):
                sent.prefilling = sent.prefilling or time.perf_counter()
                sent.prefilled = event.done >= event.total
                if sent.prefilled:
                    return None

    def stop(self) -> None:
        """End all of them between two model calls. Their ends are still to be taken."""
        self._stopped = True
        for sent in list(self._sent.values()):
            sent.request.cancelled.set()
        self.wake()

    def end(self) -> None:
        """Nobody listens any more: stop what is under way, and wait until nothing is."""
        if self:
            self.stop()
        while self:
            self.next()

    def wake(self) -> None:
        """Let a waiting `next` return."""
        self._heard.put((_WAKE, None))
