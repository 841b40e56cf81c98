"""However the engine ends, whoever waits for it is told."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.ahead import AheadRequest
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnFailed
from mlxchat.engine.loop import EngineLoop
from mlxchat.engine.request import Request
from mlxchat.errors import EngineFailed
from support.at_once import asked, events_of, next_number
from support.scripted import ScriptedEngine, model_folder

pytestmark = pytest.mark.exact

PATIENCE_S = 60


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = ScriptedEngine(model_folder(tmp_path / "model"), tmp_path / "work", "One two three.")
    yield made.engine
    made.engine.close()


def failure_of(request: Request) -> TurnFailed:
    last = events_of(request)[-1]
    assert isinstance(last, TurnFailed)
    return last


def held(engine: Engine) -> tuple[threading.Event, threading.Thread]:
    """The engine thread in the middle of something, until the event is set."""
    begun, goes_on = threading.Event(), threading.Event()

    def wait(machinery: Any) -> None:
        begun.set()
        assert goes_on.wait(PATIENCE_S)

    thread = threading.Thread(target=engine.call, args=(wait,))
    thread.start()
    assert begun.wait(PATIENCE_S)
    return goes_on, thread


def break_down(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Request, Request]:
    """The next step fails for no run's fault; two requests wait meanwhile."""

    def broken(self: EngineLoop) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(EngineLoop, "step", broken)
    requests = asked("a", "Count."), asked("b", "Count.")
    engine.call(lambda machinery: machinery.loop.waiting.extend(requests))
    return requests


def test_a_failure_of_the_loop_ends_every_request(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for request in break_down(engine, monkeypatch):
        assert "planted" in failure_of(request).error.message
    late = asked("c", "Count.")
    engine.submit(late)
    assert failure_of(late).error.message == "the engine has stopped"
    with pytest.raises(EngineFailed, match="has stopped"):
        engine.ensure_running()


def test_what_comes_while_it_closes_is_refused(engine: Engine) -> None:
    goes_on, thread = held(engine)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine._closed:
        time.sleep(0.001)
    late, ahead = asked("a", "Count."), AheadRequest(next_number(), "a", (), asked("a", "").options)
    engine.submit(late)
    engine.prepare(ahead)
    with pytest.raises(EngineFailed, match="has stopped"):
        engine.ensure_running()
    goes_on.set()
    thread.join(PATIENCE_S)
    closing.join(PATIENCE_S)
    assert failure_of(late).error.message == "the engine has stopped"
    assert ahead.done.is_set()


def test_what_is_in_the_inbox_when_the_loop_fails_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused_in_the_inbox(engine, monkeypatch)


def test_planted_an_inbox_that_is_left_full_is_seen(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_refuse_all", lambda self: setattr(self, "_closed", True))
    assert not refused_in_the_inbox(engine, monkeypatch)


def refused_in_the_inbox(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a request that nobody took out of the inbox is answered all the same."""
    late = asked("late", "Count.")

    def broken(self: EngineLoop) -> None:
        engine.submit(late)
        raise RuntimeError("planted")

    monkeypatch.setattr(EngineLoop, "step", broken)
    first = asked("a", "Count.")
    engine.submit(first)
    assert "planted" in failure_of(first).error.message
    engine._thread.join(PATIENCE_S)
    try:
        last = late.events.get(timeout=0.2)
    except queue.Empty:
        return False
    return isinstance(last, TurnFailed)
