"""`--json` and `--jsonl`: one schema each, whatever happens."""

from __future__ import annotations

import io
import json
import re

import jsonschema
import pytest
from mlxchat.cli.json_output import JsonlOutput, chat_object, write_json
from mlxchat.cli.streams import Streams
from mlxchat.cli.turn_result import TurnResult
from mlxchat.engine.events import ToolCallDone
from mlxchat.engine.messages import ToolCall, assistant
from mlxchat.engine.stats import RequestStats, total
from support.run_program import run_program
from support.schemas import SCHEMAS, validate

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_the_schemas_agree_with_each_other_and_with_the_code() -> None:
    assert set(SCHEMAS) >= {"chat-1", "turns-1", "event-1", "error-1", "convert-1"}
    for definition in ("request_stats", "run_stats", "tool_call", "usage", "finish_reason", "error", "cache"):
        texts = [json.dumps(s["$defs"][definition]) for s in SCHEMAS.values() if definition in s.get("$defs", {})]
        assert len(set(texts)) == 1
        assert len(texts) >= 3
    assert SCHEMAS["chat-1"]["$defs"]["chat"] == SCHEMAS["turns-1"]["$defs"]["chat"]
    definitions = SCHEMAS["chat-1"]["$defs"]
    assert definitions["request_stats"]["required"] == list(RequestStats().to_json())
    assert set(definitions["run_stats"]["properties"]) == set(total([RequestStats()]))


def test_an_answer() -> None:
    done = run_program("think Paris", "--json")
    value = validate(done.json)
    assert done.code == 0
    assert (value["text"], value["reasoning"], value["finish_reason"]) == ("Paris", "because", "stop")
    assert re.fullmatch("[0-9a-f]{12}", value["session_id"])
    assert value["model"] == "fake"
    assert value["usage"] == {
        "prompt_tokens": 4210,
        "cached_tokens": 4096,
        "completion_tokens": 6,
        "reasoning_tokens": 2,
    }
    assert done.err == ""


def test_a_tool_call() -> None:
    value = validate(run_program("call weather", "--json").json)
    assert value["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": {"x": 1}}]


def test_turns_and_their_sums() -> None:
    value = validate(run_program("--turns", "-", "--json", stdin=b"say one\nthink two\n").json)
    assert [turn["text"] for turn in value["turns"]] == ["one", "two"]
    assert [turn["requests"][0]["turn"] for turn in value["turns"]] == [1, 2]
    assert value["stats"]["prompt_tokens"] == 2 * 4210
    assert value["stats"]["decode_tokens_per_s"] == pytest.approx(60)


FAILURES = [
    (["fail half said"], 1, "engine", "half said"),
    (["too long"], 65, "context_exceeded", ""),
    (["crash"], 1, "internal", ""),
    ([""], 2, "usage", ""),
    (["hello", "--jsonl", "--json"], 2, "usage", ""),
    (["hello", "-f", "/absent/file"], 66, "input", ""),
    (["hello", "--temp", "hot"], 2, "usage", ""),
    (["hello", "--bogus"], 2, "usage", ""),
    (["replay"], 2, "usage", ""),
]


@pytest.mark.parametrize(("arguments", "code", "name", "said"), FAILURES)
def test_a_failure_is_one_object_too(arguments: list[str], code: int, name: str, said: str) -> None:
    done = run_program(*arguments, *(["--json"] if "--json" not in arguments else []))
    assert done.code == code
    value = validate(done.lines[-2] if "--jsonl" in arguments else done.json)
    assert value["error"]["code"] == name
    assert value["text"] == said
    assert done.error_lines == [f"mlxchat: {value['error']['message']}", value["error"]["hint"]]


def test_a_failure_after_some_turns_keeps_them() -> None:
    done = run_program("--turns", "-", "--json", stdin=b"say one\nfail two half\nsay three\n")
    value = validate(done.json)
    assert done.code == 1
    assert [turn["text"] for turn in value["turns"]] == ["one"]
    assert value["text"] == "two half"


def test_a_failure_of_usage_with_turns_has_the_turns_schema() -> None:
    value = validate(run_program("--turns", "/absent", "--json").json)
    assert value["schema"] == "mlxchat.turns/1"
    value = validate(run_program("--turns", "/absent", "--json", "--bogus").json)
    assert value["schema"] == "mlxchat.turns/1"


def test_a_replay_that_was_not_understood_has_its_own_schema() -> None:
    value = validate(run_program("replay", "--bogus", "--json").json)
    assert (value["schema"], value["turns"]) == ("mlxchat.replay/1", [])
    lines = [validate(line) for line in run_program("replay", "--bogus", "--jsonl").lines]
    assert [line["type"] for line in lines] == ["error", "done"]


def test_other_commands_fail_in_json_too() -> None:
    done = run_program("models", "info", "no-such-model", "--json")
    assert validate(done.json)["schema"] == "mlxchat.error/1"
    assert done.code == 69
    assert len(done.error_lines) == 2
    assert validate(run_program("doctor", "--bogus", "--json").json)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (["think b"], "session prefill prefill reasoning reasoning text turn done"),
        (["call weather"], "session prefill prefill tool_call turn done"),
        (["fail ab"], "session prefill prefill text error done"),
        (["relpay"], "error done"),
        (["hello", "--bogus"], "error done"),
    ],
)
def test_events(arguments: list[str], kinds: str) -> None:
    done = run_program(*arguments, "--jsonl")
    events = [validate(event) for event in done.lines]
    assert [event["type"] for event in events] == kinds.split()
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[-1]["exit_code"] == done.code


def test_events_of_several_turns() -> None:
    events = [validate(event) for event in run_program("--turns", "-", "--jsonl", stdin=b"say a\nsay b\n").lines]
    turns = [event for event in events if event["type"] == "turn"]
    assert [turn["turn"] for turn in turns] == [1, 2]
    assert [turn["text"] for turn in turns] == ["a", "b"]
    assert events[-1]["turns"] == 2
    assert events[-1]["stats"]["prompt_tokens"] == 2 * 4210


def test_notices_stay_out_of_stdout() -> None:
    done = run_program("notice look out", "--json")
    validate(done.json)
    assert done.err == "look out\n"
    assert run_program("notice look out", "--json", "-q").err == ""


def test_control_characters_are_kept_but_escaped() -> None:
    done = run_program("say a\x1b[31mb", "--json")
    assert done.json["text"] == "a\x1b[31mb"
    assert "\x1b" not in done.out


def test_a_stream_that_lacks_a_character_gets_an_escape() -> None:
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="ascii")
    write_json(Streams(stdout=stdout, stderr=io.StringIO()), {"text": "é\ud800"})
    assert json.loads(raw.getvalue()) == {"text": "é\ud800"}
    assert run_program("say é", "--json", environ={"PYTHONIOENCODING": "ascii"}).json["text"] == "é"


def test_a_tool_call_event_alone() -> None:
    out = io.StringIO()
    JsonlOutput(Streams(stdout=out, stderr=io.StringIO())).event(ToolCallDone(ToolCall("1", "f", {"a": [1]})))
    assert validate(json.loads(out.getvalue()))["tool_call"] == {"id": "1", "name": "f", "arguments": {"a": [1]}}


@pytest.mark.parametrize("fault", ["a field renamed", "a stat missing", "a wrong reason", "both a failure and a text"])
def test_planted_faults_are_caught(fault: str) -> None:
    value = chat_object(TurnResult(assistant("x"), "stop", [RequestStats(turn=1)]), "fake")
    validate(value)
    if fault == "a field renamed":
        value["answer"] = value.pop("text")
    elif fault == "a stat missing":
        del value["requests"][0]["cached_disk_tokens"]
    elif fault == "a wrong reason":
        value["finish_reason"] = "eos"
    else:
        value["error"] = {"code": "x", "message": "", "hint": ""}
    with pytest.raises(jsonschema.ValidationError):
        validate(value)
