"""Requests that are submitted at once, and what became of each."""

from __future__ import annotations

import itertools
from typing import Any

from mlxchat.engine.engine import Engine
from mlxchat.engine.events import Event, TurnDone, TurnFailed
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.engine.request import Request

_numbers = itertools.count(500_000)


def next_number() -> int:
    """A request number of these tests' own."""
    return next(_numbers)


def asked(conversation: str, text: str | Message, *before: Message, **sampling: Any) -> Request:
    message = user(text) if isinstance(text, str) else text
    wanted = SamplingOptions(**{"temp": 0.0, "max_tokens": 12, **sampling})
    return Request(next(_numbers), conversation, (*before, message), RequestOptions(sampling=wanted))


def events_of(request: Request) -> list[Event]:
    """All of them, up to the end."""
    events: list[Event] = []
    while not (events and isinstance(events[-1], TurnDone | TurnFailed)):
        events.append(request.events.get(timeout=120))
    return events


def end_of(request: Request) -> TurnDone:
    last = events_of(request)[-1]
    assert isinstance(last, TurnDone), last
    return last


def ids_of(done: TurnDone) -> tuple[int, ...]:
    assert done.message.generated is not None
    return done.message.generated.ids


def together(engine: Engine, *requests: Request) -> list[TurnDone]:
    """All of them at once."""
    engine.call(lambda machinery: machinery.loop.waiting.extend(requests))
    return [end_of(request) for request in requests]


def alone(engine: Engine, *requests: Request) -> list[TurnDone]:
    ends = []
    for request in requests:
        engine.submit(request)
        ends.append(end_of(request))
    return ends
