"""A batch on a scripted model in this process: what each request gets, and that it touches nobody else's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import Message
from mlxchat.engine.options import RequestOptions
from mlxchat.errors import EngineFailed, InputError
from mlxchat.transcripts.batch import Batch, Outcome
from mlxchat.transcripts.batch_lines import scan
from support.batches import SYSTEM, request
from support.scripted import ScriptedEngine, live_bytes, model_folder

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    work = tmp_path_factory.mktemp("batch")
    made = ScriptedEngine(model_folder(work / "model", "llama", "chatml"), work / "work", "Yes, it is so.", parallel=3)
    yield made
    made.close()


def batch_of(engine: ScriptedEngine, *lines: Any, parallel: int = 3, **more: Any) -> tuple[Batch, list[Any]]:
    file = io.BytesIO("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines).encode())
    found = list(scan(file))
    return Batch(engine.engine, file, parallel, RequestOptions(), **more), found


def run(engine: ScriptedEngine, *lines: Any, **more: Any) -> dict[int, Outcome]:
    """The outcomes by line; the engine's books are checked."""
    batch, found = batch_of(engine, *lines, **more)
    outcomes = list(batch.run(found))
    engine.check()
    assert len(outcomes) == len({outcome.line.number for outcome in outcomes})
    return {outcome.line.number: outcome for outcome in outcomes}


def status(outcome: Outcome) -> int | None:
    response = outcome.value["response"]
    return None if response is None else int(response["status_code"])


def body(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = outcome.value["response"]["body"]
    return found


def test_an_answer_is_a_chat_completion(engine: ScriptedEngine) -> None:
    (outcome,) = run(engine, request("a", max_tokens=30)).values()
    assert (outcome.value["custom_id"], status(outcome), outcome.value["error"]) == ("a", 200, None)
    answer = body(outcome)
    (choice,) = answer["choices"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "model")
    assert choice["message"] == {"role": "assistant", "content": "Yes, it is so.", "refusal": None}
    assert choice["finish_reason"] == "stop"
    usage, stats = answer["usage"], outcome.stats
    assert stats is not None
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (stats.prompt_tokens, stats.completion_tokens)
    short = run(engine, request("a", max_tokens=1))[1]
    assert body(short)["choices"][0]["finish_reason"] == "length"


def test_every_fault_is_its_own_requests(engine: ScriptedEngine) -> None:
    def stage(message: Message) -> Message:
        if "picture" in message.text:
            raise InputError("there is no such picture", "look again")
        if "library" in message.text:
            raise TypeError("of a library's own")
        return message

    lines = [
        request("good"),
        request("long", "word " * 60000),
        request("n", n=3),
        "no json",
        request("picture", "picture"),
        request("good"),
        request("late"),
        request("library", "library"),
    ]
    found = run(engine, *lines, stage=stage)
    assert [status(found[number]) for number in range(1, 9)] == [200, 400, 400, None, 400, None, 200, 400]
    assert body(found[2])["error"]["code"] == "context_length_exceeded"
    assert body(found[3])["error"] == {
        "message": "n is not supported, but for the value 1",
        "type": "invalid_request_error",
        "param": "n",
        "code": "unsupported_value",
    }
    assert found[4].value["error"]["code"] == "invalid_json_line"
    assert "no such picture" in body(found[5])["error"]["message"]
    assert found[6].value["error"]["code"] == "duplicate_custom_id"


def test_a_model_run_that_fails_is_a_server_error_of_one(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxchat.engine.runner import ModelRunner

    real, begun = ModelRunner.forward, set[int]()

    def fails(self: ModelRunner, number: int, *more: Any, **named: Any) -> Any:
        begun.add(number)
        if len(begun) == 2 and number == max(begun):
            raise RuntimeError("a fault on purpose")
        return real(self, number, *more, **named)

    monkeypatch.setattr(ModelRunner, "forward", fails)
    found = run(engine, request("a"), request("b"), request("c"), parallel=1)
    assert [status(found[number]) for number in (1, 2, 3)] == [200, 500, 200]
    assert body(found[2])["error"]["type"] == "server_error"


def test_an_engine_that_has_ended_is_no_requests_fault(tmp_path: Path) -> None:
    own = ScriptedEngine(model_folder(tmp_path / "model", "llama", "chatml"), tmp_path / "work", "Yes.")
    batch, lines = batch_of(own, request("a"), request("b"))
    own.close()
    with pytest.raises(EngineFailed, match="stopped"):
        list(batch.run(lines))


def test_requests_on_one_system_prompt_share_its_kv(engine: ScriptedEngine) -> None:
    lines = [request(f"s{n}", f"Question {n}?", f"Shared. {SYSTEM}") for n in range(4)]
    found = run(engine, *lines, parallel=4)
    cached = [body(found[number])["usage"]["prompt_tokens_details"]["cached_tokens"] for number in range(1, 5)]
    shared = body(found[1])["usage"]["prompt_tokens"] - 20
    assert min(cached[1:]) >= shared > 100, "three of four wait until the first has prefilled it"
    assert cached[0] < 20


def test_planted_requests_that_do_not_wait_prefill_it_again(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = sent_together(engine, monkeypatch, "Other. ")
    assert order == 1
    monkeypatch.setattr(Batch, "_may_go", lambda self, prepared: True)
    assert sent_together(engine, monkeypatch, "Another. ") == 3


def sent_together(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, opening: str) -> int:
    """How many of three requests on one system prompt are under way before any is prefilled."""
    batch, lines = batch_of(engine, *(request(f"p{n}", f"{n}?", f"{opening}{SYSTEM}") for n in range(3)))
    assert list(batch._start(iter(lines))) == []
    count = len(batch._flights)
    batch.stop()
    list(batch.run([]))
    return count


def test_what_is_done_holds_nothing(engine: ScriptedEngine) -> None:
    run(engine, *(request(f"m{n}", f"Number {n}. {SYSTEM}") for n in range(5)), parallel=2)
    held: dict[int, int] = engine.engine.call(live_bytes)  # type: ignore[assignment]
    assert held
    assert not any(held.values())


def test_a_stop_leaves_what_is_under_way_unanswered(engine: ScriptedEngine) -> None:
    from support.scripted import next_number

    batch, lines = batch_of(engine, *(request(f"k{n}", max_tokens=30) for n in range(6)), parallel=2)
    engine.gate.hold(f"{next_number() + 2}.token.2")
    seen = []
    for outcome in batch.run(lines):
        seen.append(outcome.line.custom_id)
        if len(seen) == 2:
            engine.gate.wait_held()
            batch.stop()
            engine.gate.release()
    assert seen == ["k0", "k1"]
    assert len(batch._flights) == 0
    engine.check()


def test_a_listener_that_leaves_leaves_nothing_under_way(engine: ScriptedEngine) -> None:
    batch, lines = batch_of(engine, *(request(f"l{n}") for n in range(5)))
    running: Any = batch.run(lines)
    next(running)
    running.close()
    assert len(batch._flights) == 0


def test_notices_name_their_request(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlxchat.engine.events import Notice
    from mlxchat.engine.turn import TurnBuilder

    real: Callable[..., Any] = TurnBuilder.finish

    def finish(self: TurnBuilder, turn: Any) -> None:
        turn.request.events.put(Notice("something is odd"))
        real(self, turn)

    monkeypatch.setattr(TurnBuilder, "finish", finish)
    said: list[tuple[str | None, str]] = []
    run(engine, request("x"), request("y"), on_notice=lambda line, text: said.append((line.custom_id, text)))
    assert sorted(said) == [("x", "something is odd"), ("y", "something is odd")]


def test_one_answer_follows_a_schema_beside_one_that_does_not(tmp_path: Path) -> None:
    digit = {"type": "integer", "minimum": 0, "maximum": 9}
    schema = {"type": "object", "properties": {"n": digit}, "required": ["n"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "digit", "schema": schema}}
    own = ScriptedEngine(model_folder(tmp_path / "model", "llama", "chatml"), tmp_path / "work", "Yes.", parallel=2)
    try:
        own.unscript()
        found = run(own, request("a", response_format=wanted, max_tokens=200), request("b", max_tokens=9))
    finally:
        own.close()
    said = [body(found[number])["choices"][0]["message"]["content"] for number in (1, 2)]
    assert set(json.loads(said[0])) == {"n"}
    assert "{" not in said[1]
