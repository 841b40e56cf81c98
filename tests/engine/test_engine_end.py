"""However the engine ends, whoever waits for it is told."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache.live import LiveCache
from mlxchat.engine import decoding
from mlxchat.engine.ahead import AheadRequest
from mlxchat.engine.beginning import Beginning
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.loop import EngineLoop
from mlxchat.engine.options import CacheOptions
from mlxchat.engine.prefilling import Prefiller
from mlxchat.engine.request import Request
from mlxchat.engine.reuse import Reuse
from mlxchat.engine.setup import Machinery
from mlxchat.errors import EngineFailed
from support.at_once import alone, asked, ids_of, next_number
from support.scripted import ScriptedEngine, model_folder

pytestmark = pytest.mark.exact

PATIENCE_S = 60


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = ScriptedEngine(model_folder(tmp_path / "model"), tmp_path / "work", "One two three.")
    yield made.engine
    made.engine.close()


def failure_of(request: Request) -> TurnFailed:
    while not isinstance(last := request.events.get(timeout=PATIENCE_S), TurnFailed):
        assert not isinstance(last, TurnDone)
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


def planted(*_: Any, **__: Any) -> None:
    raise RuntimeError("planted")


def test_what_waits_is_answered_though_the_last_steps_fail(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    running, waiting = asked("a", "Count."), asked("b", "Count.")
    closing = threading.Thread(target=engine.close)

    def begin(machinery: Any) -> None:
        machinery.loop.waiting.extend((running, waiting))
        machinery.loop.step()
        assert [run.request for run in machinery.loop.active] == [running]
        monkeypatch.setattr(EngineLoop, "step", planted)
        closing.start()
        while engine._inbox.empty():
            time.sleep(0.001)

    engine.call(begin)
    closing.join(PATIENCE_S)
    assert "planted" in failure_of(running).error.message
    assert failure_of(waiting).error.message == "the engine has stopped"


def test_a_failure_while_a_conversation_is_deleted_ends_every_request(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once is enough: what a step has left behind half done, no other may go on with."""
    deleted, waiting = asked("a", "Count."), asked("b", "Count.")

    def delete(machinery: Any) -> None:
        machinery.loop.waiting.extend((deleted, waiting))
        machinery.loop.step()
        assert [run.request for run in machinery.loop.active] == [deleted]
        with monkeypatch.context() as once:
            once.setattr(EngineLoop, "step", planted)
            machinery.loop.forget("a")

    with pytest.raises(RuntimeError, match="planted"):
        engine.call(delete)
    for request in (deleted, waiting):
        assert "planted" in failure_of(request).error.message
    with pytest.raises(EngineFailed, match="has stopped"):
        engine.ensure_running()


def decode(machinery: Any, request: Request) -> None:
    """Let it in, and step until it decodes."""
    machinery.loop.waiting.append(request)
    while not any(run.decodes for run in machinery.loop.active):
        machinery.loop.step()


def test_others_that_fail_meanwhile_end_every_request(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is restored, what the others trip over together would pass for its fault, and they went on."""
    running = asked("a", "Count.")

    def meanwhile(machinery: Any) -> None:
        decode(machinery, running)
        with monkeypatch.context() as once:
            once.setattr(decoding, "begin", planted)
            machinery.loop.let_others_decode()

    with pytest.raises(RuntimeError, match="planted"):
        engine.call(meanwhile)
    assert "planted" in failure_of(running).error.message
    with pytest.raises(EngineFailed, match="has stopped"):
        engine.ensure_running()


def test_one_whose_picture_is_looked_at_meanwhile_is_told_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    running = asked("a", "Count.")

    def meanwhile(machinery: Any) -> None:
        decode(machinery, running)
        with monkeypatch.context() as once, machinery.loop._apart(machinery.loop.active[0]):
            once.setattr(decoding, "begin", planted)
            machinery.loop.let_others_decode()

    engine.call(meanwhile)
    assert "planted" in failure_of(running).error.message
    engine._thread.join(PATIENCE_S)
    assert running.events.empty()


def test_work_ahead_ends_with_its_conversation(engine: Engine) -> None:
    ahead = AheadRequest(next_number(), "a", asked("a", "Count.").messages, asked("a", "").options)

    def delete(machinery: Any) -> list[str]:
        machinery.loop.prepare(ahead)
        machinery.loop.forget("a")
        while machinery.loop.busy:
            machinery.loop.step()
        return list(machinery.loop.sequences)

    assert engine.call(delete) == []
    assert ahead.done.is_set()


def test_what_a_failed_step_left_is_not_kept_for_the_next_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that was under way has moved the recurrent state past the ids that are known."""
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    model = model_folder(tmp_path / "model", "qwen3_5", "qwen36")
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=1 << 26, persist=True)
    held: list[LiveCache] = []

    def fail(*lazy: mx.array) -> None:
        if loops[0].active[0].live.length == 304:
            held.append(loops[0].active[0].live)
            raise RuntimeError("planted")
        mx.async_eval(*lazy)  # type: ignore[no-untyped-call]

    ids = np.random.default_rng(5).integers(5, 200, 300).astype(np.int32)
    first = ScriptedEngine(model, tmp_path / "one", cache=cache)
    first.unscript()
    loops: list[EngineLoop] = [first.engine.call(lambda machinery: machinery.loop)]  # type: ignore[list-item]
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "begin", fail)
        request = replace(asked("a", "-", max_tokens=30), ids=ids)
        first.engine.submit(request)
        assert "planted" in failure_of(request).error.message
        first.close()
    [live] = held
    later = np.concatenate([live.ids, ids[:3]])
    second = ScriptedEngine(model, tmp_path / "two", cache=cache)
    try:
        second.unscript()
        goes_on = replace(asked("a", "-", max_tokens=30), ids=later)
        from_nothing = replace(asked("b", "-", max_tokens=30), ids=later, uncached=True)
        one, other = alone(second.engine, goes_on, from_nothing)
        assert ids_of(one) == ids_of(other)
        assert one.stats.cached_tokens < 304
    finally:
        second.close()


def test_a_run_is_answered_though_its_end_fails_twice(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prefiller, "step", planted)
    monkeypatch.setattr(Reuse, "abandon", planted)
    request = asked("a", "Count.")
    engine.submit(request)
    assert "planted" in failure_of(request).error.message


def test_a_request_is_answered_though_its_caches_cannot_be_let_go(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Beginning, "restore", planted)
    monkeypatch.setattr(Reuse, "abandon", planted)
    request = asked("a", "Count.")
    engine.submit(request)
    assert "planted" in failure_of(request).error.message


def test_a_start_is_answered_though_nothing_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machinery, "running", planted)
    made: queue.SimpleQueue[object] = queue.SimpleQueue()

    def start() -> None:
        try:
            ScriptedEngine(model_folder(tmp_path / "model"), tmp_path / "work", "One two three.")
        except RuntimeError as error:
            made.put(error)

    threading.Thread(target=start, daemon=True).start()
    assert isinstance(made.get(timeout=PATIENCE_S), RuntimeError)
