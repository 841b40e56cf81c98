"""Batch files: which lines are requests, what a body may say, and that nothing in it is passed over in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import ImagePart
from mlxchat.engine.options import RequestOptions, SamplingOptions, ThinkingOptions
from mlxchat.engine.sampling import resolve
from mlxchat.transcripts import batch_lines
from mlxchat.transcripts.batch_body import IGNORED, BadRequest, read_body
from mlxchat.transcripts.batch_lines import body_at
from mlxchat.transcripts.json_lines import NotJson
from support.batches import request, scanned, write

pytestmark = pytest.mark.plain

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def read(defaults: RequestOptions | None = None, **body: Any) -> Any:
    return read_body(request("a", **body)["body"], defaults or RequestOptions())


def test_lines_that_are_no_requests_are_named_and_the_others_stay(tmp_path: Path) -> None:
    good, other = request("a"), request("b")
    lines = [
        good,
        "no json",
        b"\xff\xfe",
        "",
        "[1]",
        {**good, "custom_id": 7},
        {**good, "custom_id": "m", "method": "GET"},
        {**good, "custom_id": "u", "url": "/v1/embeddings"},
        {**good, "custom_id": "n", "body": None},
        {**good, "body": {}},
        {**other, "priority": 1},
        "[" * 300 + "]" * 300,
    ]
    found = scanned(write(tmp_path / "r.jsonl", lines))
    assert [(line.number, line.fault.code if line.fault else None) for line in found] == [
        (1, None),
        (2, "invalid_json_line"),
        (3, "invalid_json_line"),
        (5, "invalid_json_line"),
        (6, "missing_required_parameter"),
        (7, "invalid_method"),
        (8, "invalid_url"),
        (9, "missing_required_parameter"),
        (10, "duplicate_custom_id"),
        (11, None),
        (12, "invalid_json_line"),
    ]
    assert found[-2].unknown == ("priority",)
    assert len({line.id for line in found}) == len(found)


def test_a_lines_id_is_its_own_wherever_it_stands(tmp_path: Path) -> None:
    first = scanned(write(tmp_path / "a", [request("a"), "x", "x", request("b")]))
    moved = scanned(write(tmp_path / "b", [request("b"), "x", "", request("a"), "x"]))
    assert {line.id for line in first} == {line.id for line in moved}
    changed = scanned(write(tmp_path / "c", [request("a", "other words")]))
    assert changed[0].id not in {line.id for line in first}


def test_a_line_that_is_too_long_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lines, "LONGEST_LINE", 300)
    found = scanned(write(tmp_path / "r", [request("a"), request("b", "x" * 4000), request("c")]))
    assert [line.fault.code if line.fault else None for line in found] == [None, "invalid_json_line", None]
    with (tmp_path / "r").open("rb") as stream:
        assert body_at(stream, found[2])["messages"][0]["content"] == "Well?"


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    (line,) = scanned(write(tmp_path / "r", [request("a")]))
    write(tmp_path / "r", [request("z")])
    with (tmp_path / "r").open("rb") as stream, pytest.raises(NotJson, match="changed"):
        body_at(stream, line)


def test_what_a_body_says_is_what_runs() -> None:
    asked = read(
        model="gpt",
        max_tokens=None,
        max_completion_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        seed=-1,
        stop=["a", "b"],
        tools=[TOOL],
        presence_penalty=0.5,
        frequency_penalty=0,
        user="me",
        n=1,
        stream=False,
        response_format={"type": "text"},
        chat_template_kwargs={"enable_thinking": False},
    )
    sampling = asked.options.sampling
    assert (sampling.max_tokens, sampling.temp, sampling.top_p, sampling.top_k) == (7, 1.0, 0.5, 3)
    assert (sampling.min_p, sampling.seed, sampling.stop) == (0.1, -1, ("a", "b"))
    assert sampling.extra == {"presence_penalty": 0.5, "frequency_penalty": 0}
    assert asked.options.tools == (TOOL,)
    assert asked.options.thinking == ThinkingOptions(enabled=False)
    assert (asked.model, asked.ignored) == ("gpt", ("user",))
    assert read(tools=[TOOL], tool_choice="none").options.tools == ()


def test_a_top_p_of_nothing_is_said_and_not_left_to_the_model() -> None:
    """0 is what `--top-p 0` hands on, and mlx-lm reads it as off: the model's own advice would be something else."""
    for top_p in (0, 0.0):
        sampling = read(temperature=1, top_p=top_p).options.sampling
        assert (sampling.temp, sampling.top_p) == (1.0, 0.0)
        assert resolve(sampling, {"do_sample": True, "top_p": 0.3})["top_p"] == 0.0
        assert resolve(sampling, {"do_sample": True, "top_p": 0.3})["temp"] == 1.0


def test_an_answer_may_have_to_follow_a_schema() -> None:
    schema = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
    asked = read(response_format={"type": "json_schema", "json_schema": {"name": "rating", "schema": schema}})
    assert json.loads(asked.options.schema) == schema
    assert json.loads(read(response_format={"type": "json_object"}).options.schema) == {"type": "object"}
    assert read(response_format={"type": "text"}).options.schema is None


def test_what_a_body_does_not_say_is_as_the_user_said() -> None:
    defaults = RequestOptions(SamplingOptions(temp=0.3, max_tokens=9), ThinkingOptions(enabled=True))
    asked = read(defaults, max_tokens=None, temperature=None)
    assert (asked.options.sampling.temp, asked.options.sampling.max_tokens) == (0.3, 9)
    assert asked.options.thinking.enabled is True


def test_messages_of_every_role_and_kind() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = read(
        messages=[
            {"role": "developer", "content": "Be brief.", "refusal": None},
            {"role": "user", "content": [{"type": "text", "text": "This?"}, picture], "cache_control": {"type": "x"}},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "Seen."},
        ]
    )
    assert [message.role for message in asked.messages] == ["system", "user", "assistant", "tool"]
    assert any(isinstance(part, ImagePart) for part in asked.messages[1].content)
    assert asked.messages[2].tool_calls[0].arguments == {"a": 1}
    assert asked.ignored == ("messages[].cache_control",)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"frequency": 1}, "frequency"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"stream": True}, "stream"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "tools": [TOOL]}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": "look"}, "tools"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"seed": "x"}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"model": 3}, "model"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "a", "parts": 3}]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": 3}]}, "messages[0].tool_calls"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"maximum": float("inf")}}}},
            "response_format",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else None,
)
def test_what_can_not_be_done_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert caught.value.param == param


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_is_ignored_is_told(name: str) -> None:
    assert read(**{name: "x"}).ignored == (name,)
    assert read(**{name: None}).ignored == ()
