"""What came of one turn, and the loop that follows its events to the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ..engine.events import Event, TextDelta, TurnDone, TurnFailed
from ..engine.messages import Message
from ..engine.stats import FinishReason, RequestStats
from ..errors import EngineFailed, MlxchatError


@dataclass(frozen=True)
class TurnResult:
    """One turn as it ended. `error` is set if it failed; `message` then holds what had been said."""

    message: Message
    finish_reason: FinishReason
    requests: list[RequestStats] = field(default_factory=list)
    error: MlxchatError | None = None


class EventSink(Protocol):
    """Whatever shows events while they come."""

    def event(self, event: Event) -> None:
        """Show one event."""


def follow(events: Iterator[Event], sink: EventSink) -> TurnResult:
    """Hand every event to `sink` and return the result of the turn."""
    said: list[str] = []
    for event in events:
        sink.event(event)
        if isinstance(event, TextDelta):
            said.append(event.text)
        elif isinstance(event, TurnDone):
            return TurnResult(event.message, event.finish_reason, [event.stats])
        elif isinstance(event, TurnFailed):
            return failed_turn(event.error, event.partial or "".join(said))
    return failed_turn(EngineFailed("the model stopped without ending its turn"), "".join(said))


def failed_turn(error: MlxchatError, said: str) -> TurnResult:
    """The result of a turn that `error` ended after `said`."""
    from ..engine.messages import assistant

    return TurnResult(assistant(said), "error", error=error)
