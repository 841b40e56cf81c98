"""Several requests at once: each answered as if it were alone, whatever becomes of the others."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache.memory import free_bytes
from mlxchat.cache.reader import Reader
from mlxchat.cache.together import RowsTogether
from mlxchat.engine import setup
from mlxchat.engine.events import Notice, TextDelta, TurnDone, TurnFailed
from mlxchat.engine.messages import assistant, system, user
from mlxchat.engine.options import RequestOptions
from mlxchat.engine.recorded import Feed, Recorded
from mlxchat.engine.request import Request
from mlxchat.engine.runner import ModelRunner
from mlxchat.engine.sampling import OwnRandom
from mlxchat.engine.setup import Machinery
from support.at_once import alone, asked, end_of, events_of, ids_of, next_number, together
from support.scripted import ScriptedEngine, model_folder, wait_until

pytestmark = pytest.mark.exact

SIZES = (4, 30, 100, 9, 60)
"""Words of the questions: within a block and past it."""


DRAWN: dict[str, Any] = {"temp": 0.9, "top_p": 0.95}


def question(number: int) -> str:
    words = np.random.default_rng(number).integers(0, 900, SIZES[number % len(SIZES)])
    return f"Number {number}: " + " ".join(f"w{word}" for word in words)


def widths(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sequences each joint call from now on feeds."""
    seen: list[int] = []
    real = ModelRunner.forward_together

    def noting(self: ModelRunner, fed: Any) -> mx.array:
        seen.append(len(fed))
        return real(self, fed)

    monkeypatch.setattr(ModelRunner, "forward_together", noting)
    return seen


KINDS = ["qwen3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gemma3_text", "qwen3_5"))]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {"sliding_window": 128} if request.param == "gemma3_text" else {}
    return model_folder(tmp_path_factory.mktemp(request.param) / "model", request.param, **changes)


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(folder, tmp_path_factory.mktemp("four"), parallel=4)
    made.unscript()
    yield made
    made.check()
    made.close()
    assert made.notices == []


@pytest.fixture(scope="module")
def single(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(folder, tmp_path_factory.mktemp("one"))
    made.unscript()
    yield made
    made.close()


def test_answers_are_those_of_each_alone(
    engine: ScriptedEngine, single: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven requests for four places, of different lengths, answers too, so that they join and leave all the time."""
    seen = widths(engine, monkeypatch)
    limits = [5, 21, 12, 17, 3, 9, 1]
    many = [asked(f"same {n}", question(n), max_tokens=limit) for n, limit in enumerate(limits)]
    wanted = alone(
        single.engine, *(asked(f"same {n}", question(n), max_tokens=limit) for n, limit in enumerate(limits))
    )
    got = together(engine.engine, *many)
    assert [ids_of(one) for one in got] == [ids_of(one) for one in wanted]
    assert [one.finish_reason for one in got] == [one.finish_reason for one in wanted]
    assert max(seen) == 4
    engine.check()


def test_seeds_are_each_requests_own(engine: ScriptedEngine, single: ScriptedEngine) -> None:
    many = [asked(f"drawn {n}", question(n), seed=n, **DRAWN) for n in range(4)]
    wanted = alone(single.engine, *(asked(f"drawn {n}", question(n), seed=n, **DRAWN) for n in range(4)))
    loose = asked("not seeded", question(4), **DRAWN)
    got = together(engine.engine, *many[:2], loose, *many[2:])
    assert [ids_of(one) for one in (*got[:2], *got[3:])] == [ids_of(one) for one in wanted]


def test_planted_draws_from_the_same_numbers_are_seen(
    engine: ScriptedEngine, single: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnRandom, "__enter__", lambda self: None)
    monkeypatch.setattr(OwnRandom, "__exit__", lambda self, *exc: None)
    wanted = alone(single.engine, *(asked(f"mixed {n}", question(n), seed=n, **DRAWN) for n in range(3)))
    got = together(engine.engine, *(asked(f"mixed {n}", question(n), seed=n, **DRAWN) for n in range(3)))
    assert [ids_of(one) for one in got] != [ids_of(one) for one in wanted]


def test_later_turns_come_back_from_records(engine: ScriptedEngine, single: ScriptedEngine) -> None:
    """Each conversation was parked when its first request ended, and its second goes on as if it had stayed."""
    firsts = together(engine.engine, *(asked(f"two {n}", question(n)) for n in range(4)))
    more = [(user(question(n)), firsts[n].message) for n in range(4)]
    seconds = together(engine.engine, *(asked(f"two {n}", "And then?", *more[n]) for n in range(4)))
    wanted = [alone(single.engine, asked(f"again {n}", "And then?", *more[n]))[0] for n in range(4)]
    assert [ids_of(one) for one in seconds] == [ids_of(one) for one in wanted]
    for first, second in zip(firsts, seconds, strict=True):
        assert second.stats.cached_disk_tokens > 0
        assert second.stats.cached_tokens >= first.stats.prompt_tokens - 1


def test_requests_of_one_conversation_run_in_order(engine: ScriptedEngine) -> None:
    first, second = asked("ordered", question(1), max_tokens=30), asked("ordered", question(1), max_tokens=2)
    other = asked("beside it", question(3), max_tokens=2)
    ends = together(engine.engine, first, second, other)
    assert ends[1].stats.cached_tokens >= ends[0].stats.prompt_tokens - 1
    assert ends[1].stats.ttft_ms > ends[2].stats.ttft_ms


def test_what_several_have_in_common_is_prefilled_once(engine: ScriptedEngine) -> None:
    """They are let in one after another, so the second finds what the first has written."""
    shared = system("Read this first. " + question(2))
    got = together(engine.engine, *(asked(f"common {n}", f"Then {n}", shared) for n in range(4)))
    assert got[0].stats.cached_tokens < 16
    assert all(one.stats.cached_tokens >= 256 for one in got[1:])


def test_finished_sequences_hold_nothing(engine: ScriptedEngine) -> None:
    def active(machinery: Machinery) -> int:
        mx.clear_cache()
        held = [s for s in machinery.loop.sequences.values() if s.live is not None]
        assert held == []
        return mx.get_active_memory()

    together(engine.engine, asked("warm", question(0)))
    before = engine.engine.call(active)
    together(engine.engine, *(asked(f"large {n}", question(2)) for n in range(4)))
    assert engine.engine.call(active) <= before * 1.01  # type: ignore[operator]


@pytest.mark.parametrize("feed", ["decode", "prefill"])
def test_recorded_answers_are_fed_beside_others(
    engine: ScriptedEngine, single: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    """What they leave in the caches is what they leave alone: the next answer shows it."""
    seen = widths(engine, monkeypatch)
    answer = assistant("The first answer is already known, word by word.")
    fed = [asked(f"{feed} {n}", question(n)) for n in range(2)]
    for request in fed:
        request.recorded = Recorded(answer, feed)
    together(engine.engine, *fed, asked("beside", question(3)))
    assert (3 in seen) == (feed == "decode")
    again = [(f"{feed} {n}", "And then?", user(question(n)), answer) for n in range(2)]
    got = together(engine.engine, *(asked(*one) for one in again))
    wanted = alone(single.engine, *(asked(*one) for one in again))
    assert [ids_of(one) for one in got] == [ids_of(one) for one in wanted]


def test_models_that_cannot_decode_together_take_turns(
    single: ScriptedEngine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "decodes_together", lambda *asked: False)
    made = ScriptedEngine(folder, tmp_path, parallel=3)
    made.unscript()
    seen = widths(made, monkeypatch)
    got = together(made.engine, *(asked(f"turns {n}", question(n)) for n in range(3)))
    made.close()
    wanted = alone(single.engine, *(asked(f"turns {n}", question(n)) for n in range(3)))
    assert [ids_of(one) for one in got] == [ids_of(one) for one in wanted]
    assert seen == []
    assert [line.partition("; ")[2] for line in made.notices] == ["parallel ones take turns"]
    assert got[0].stats.ttft_ms < got[2].stats.ttft_ms


def test_prefill_and_decode_take_turns(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever talks waits for one long prefill call, or for a few short ones, and then says its next word."""
    row: list[int] = []
    rows: list[list[int]] = []
    real = ModelRunner.forward

    def noting(self: ModelRunner, request: int, sequence: int, live: Any, start: int, ids: mx.array) -> mx.array:
        if request != talks.number:
            row.append(ids.size)
        elif row:
            rows.append([*row])
            row.clear()
        return real(self, request, sequence, live, start, ids)

    talks = talking(engine)
    monkeypatch.setattr(ModelRunner, "forward", noting)
    many = [asked(f"turn {n}", question(n), max_tokens=1) for n in (52, 50, 53)]
    together(engine.engine, *many)
    talks.cancelled.set()
    end_of(talks)
    assert len(rows) > 3
    assert all(len(one) == 1 or (len(one) <= 4 and sum(one) <= 256) for one in rows)


# -- one of them -------------------------------------------------------------------------------------------------------


def test_a_cancel_leaves_the_others_alone(engine: ScriptedEngine, single: ScriptedEngine) -> None:
    many = [asked(f"stopped {n}", question(n), max_tokens=40) for n in range(4)]
    wanted = alone(single.engine, *(asked(f"stopped {n}", question(n), max_tokens=40) for n in range(4)))
    engine.gate.hold(f"{many[1].number}.token.9")
    engine.engine.call(lambda machinery: machinery.loop.waiting.extend(many))
    engine.gate.wait_held()
    many[1].cancelled.set()
    engine.gate.release()
    got = [end_of(request) for request in many]
    assert [one.finish_reason for one in got] == ["length", "interrupted", "length", "length"]
    assert ids_of(got[1]) == ids_of(wanted[1])[:8]
    for number in (0, 2, 3):
        assert ids_of(got[number]) == ids_of(wanted[number])
    resumed = asked("stopped 1", "Go on.", user(question(1)), got[1].message)
    assert together(engine.engine, resumed)[0].stats.cached_tokens >= got[1].stats.prompt_tokens - 1
    engine.check()


def test_bad_requests_end_alone(engine: ScriptedEngine, single: ScriptedEngine) -> None:
    """A setting that nobody knows, a prompt that is too long, a processor that fails in the middle."""
    wanted = alone(single.engine, asked("good", question(1), max_tokens=30))[0]
    unknown = asked("unknown", "?", extra={"no_such_setting": 1})
    large = Request(next_number(), "large", (user(question(2)),), RequestOptions(max_context=64))
    breaks = asked("breaks", question(3), max_tokens=30)
    good = asked("good", question(1), max_tokens=30)

    def plant(machinery: Machinery) -> None:
        real = machinery.loop._turns.start

        def start(request: Request, *more: Any) -> Any:
            run = real(request, *more)
            if request is breaks:
                run.draw.processors = [Breaking()]
            return run

        machinery.loop._turns.start = start  # type: ignore[method-assign]
        machinery.loop.waiting.extend([unknown, breaks, large, good])

    engine.engine.call(plant)
    ends = [events_of(request)[-1] for request in (unknown, large, breaks)]
    engine.engine.call(lambda machinery: delattr(machinery.loop._turns, "start"))
    assert [type(end) for end in ends] == [TurnFailed] * 3
    assert "planted" in ends[2].error.message  # type: ignore[union-attr]
    assert ids_of(end_of(good)) == ids_of(wanted)


class Breaking:
    """A logits processor that fails at its fifth id."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        self.asked += 1
        if self.asked == 5:
            raise ValueError("planted")
        return logits


def test_a_joint_call_that_fails_is_made_one_by_one(
    engine: ScriptedEngine, single: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half way through the layers: what some of them have taken is dropped, and nobody's answer changes."""
    real, asks = RowsTogether.update_and_fetch, itertools.count(1)

    def failing(self: RowsTogether, keys: mx.array, values: mx.array) -> Any:
        got = real(self, keys, values)
        if next(asks) == 5:
            raise MemoryError("planted")
        return got

    wanted = alone(single.engine, *(asked(f"failing {n}", question(n)) for n in range(3)))
    monkeypatch.setattr(RowsTogether, "update_and_fetch", failing)
    got = together(engine.engine, *(asked(f"failing {n}", question(n)) for n in range(3)))
    assert next(asks) > 5
    assert [ids_of(one) for one in got] == [ids_of(one) for one in wanted]


def test_who_does_not_fit_waits_and_says_so(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for one beside nothing, so they run one after another."""
    seen = widths(engine, monkeypatch)
    engine.engine.call(lambda machinery: setattr(machinery.loop._admission._memory, "_free", lambda: 0))
    first, second = asked("fits", question(0)), asked("waits", question(1))
    engine.engine.call(lambda machinery: machinery.loop.waiting.extend([first, second]))
    heard = [events_of(first), events_of(second)]
    engine.engine.call(lambda machinery: setattr(machinery.loop._admission._memory, "_free", free_bytes))
    notices = [[event.text for event in events if isinstance(event, Notice)] for events in heard]
    assert notices[0] == []
    assert len(notices[1]) == 1
    assert "waiting for memory" in notices[1][0]
    assert isinstance(heard[1][-1], TurnDone)
    assert seen == []


def test_one_that_was_held_back_and_is_cancelled_holds_nobody_back(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks, gone = talking(engine), asked("gone", question(1))
    memory = engine.engine.call(lambda machinery: machinery.loop._admission._memory)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "_free", lambda: 0)
        engine.engine.submit(gone)
        assert isinstance(gone.events.get(timeout=60), Notice)
        gone.cancelled.set()
        assert end_of(gone).finish_reason == "interrupted"
    assert engine.engine.call(lambda machinery: machinery.loop._admission.asks_again(machinery.loop.active))
    talks.cancelled.set()
    end_of(talks)


def talking(engine: ScriptedEngine) -> Request:
    """A request that has begun to answer, and has much to say."""
    request = asked("talks", question(0), max_tokens=1500)
    engine.engine.submit(request)
    hears(request, 3)
    return request


def hears(request: Request, words: int) -> None:
    """Wait for so many pieces of the answer. queue.Empty if they don't come."""
    while words:
        words -= isinstance(request.events.get(timeout=3), TextDelta)


def drain(request: Request) -> None:
    """Forget what has been said so far."""
    while not request.events.empty():
        request.events.get()


@contextmanager
def restoring(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Request]:
    """A request whose restore waits for the disk, which answers at the end."""
    before = together(engine.engine, asked("held up", question(2)))[0]
    waits, answers, real = threading.Event(), threading.Event(), Reader._serve

    def serve(self: Reader, batch: Any) -> None:
        waits.set()
        answers.wait(60)
        real(self, batch)

    monkeypatch.setattr(Reader, "_serve", serve)
    request = asked("held up", "Go on.", user(question(2)), before.message)
    engine.engine.submit(request)
    assert waits.wait(60)
    yield request
    answers.set()


def test_others_go_on_during_a_restore(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = talking(engine)
    with restoring(engine, monkeypatch) as request:
        drain(talks)
        hears(talks, 5)
    assert end_of(request).stats.cached_disk_tokens > 0
    talks.cancelled.set()
    end_of(talks)


def test_planted_a_restore_that_is_waited_for_is_seen(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = talking(engine)
    reader = engine.engine.call(lambda machinery: machinery.store._reader)
    with restoring(engine, monkeypatch) as request:
        monkeypatch.setattr(reader, "meanwhile", None)
        drain(talks)
        with pytest.raises(queue.Empty):
            hears(talks, 5)
    monkeypatch.undo()
    talks.cancelled.set()
    end_of(request)
    end_of(talks)


def test_deleting_a_conversation_ends_its_request_only(engine: ScriptedEngine) -> None:
    kept, deleted = asked("kept", question(0), max_tokens=30), asked("deleted", question(1), max_tokens=400)
    engine.engine.submit(deleted)
    engine.engine.submit(kept)
    wait_until(lambda: not deleted.events.empty(), "the request to begin")
    engine.engine.forget("deleted")
    assert end_of(deleted).finish_reason == "interrupted"
    assert end_of(kept).finish_reason in ("length", "stop")


def test_closing_ends_all(folder: Path, tmp_path: Path) -> None:
    made = ScriptedEngine(folder, tmp_path, parallel=2)
    made.unscript()
    many = [asked(f"closing {n}", question(n), max_tokens=2000) for n in range(3)]
    for request in many:
        made.engine.submit(request)
    wait_until(lambda: any(isinstance(many[1].events.get(timeout=60), TextDelta) for _ in range(1000)), "an answer")
    made.close()
    assert [type(events_of(request)[-1]) for request in many] == [TurnDone, TurnDone, TurnFailed]
