"""Lines of a Session Trace: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine.messages import FilePart, Generated, ImagePart, Message, TextPart, ToolCall
from mlxchat.transcripts import sts
from mlxchat.transcripts.model import Entry, Usage
from mlxchat.transcripts.session_appender import encoded

pytestmark = pytest.mark.exact

WORDS = st.text(max_size=20)
SOME = st.text(min_size=1, max_size=20)
IDS = st.lists(st.integers(0, 200_000), max_size=5).map(tuple)
PARTS = st.one_of(
    st.builds(TextPart, SOME), st.builds(FilePart, SOME, WORDS), st.builds(ImagePart, st.just("images/ab.png"))
)
ARGUMENTS = st.dictionaries(WORDS, st.one_of(st.integers(), WORDS, st.none(), st.lists(st.booleans())), max_size=3)
CALLS = st.builds(ToolCall, SOME, SOME, ARGUMENTS, st.one_of(st.none(), SOME))
GENERATED = st.builds(lambda text, a, b: Generated(text, a, b, len(b)), WORDS, IDS, IDS)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(PARTS, max_size=3).map(tuple),
    reasoning=st.one_of(st.none(), WORDS),
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    tool_call_id=st.one_of(st.none(), WORDS),
    name=st.one_of(st.none(), WORDS),
    interrupted=st.booleans(),
)
TIMES = st.one_of(st.none(), st.integers(0, 4 * 10**12).map(lambda ms: sts._time(ms)))
USAGES = st.one_of(st.none(), st.builds(Usage, st.one_of(st.none(), st.integers(0, 10**6)), st.integers(0, 9)))
ENTRIES = st.builds(
    Entry, MESSAGES, st.just(7), id=SOME, parent_id=st.one_of(st.none(), SOME), time=TIMES, model=SOME, usage=USAGES
)


def again(entry: Entry) -> Entry:
    return sts.read_entry(json.loads(encoded(sts.message_line(entry))), entry.line)


@given(ENTRIES, st.one_of(st.none(), GENERATED))
def test_an_entry_comes_back_whole(entry: Entry, generated: Generated | None) -> None:
    if entry.message.role == "assistant":
        entry = replace(entry, message=replace(entry.message, generated=generated))
    back = again(entry)
    assert back == entry
    assert back.message.generated == entry.message.generated


def test_a_line_is_what_the_format_says() -> None:
    call = ToolCall("c1", "get", {"x": "é"}, '{"x":  "é"}')
    message = Message("assistant", (TextPart("Hi."),), reasoning="Hm.", tool_calls=(call,))
    line = sts.message_line(Entry(message, 2, id="a", parent_id=None, time="1970-01-01T00:00:01.500+00:00", model="m"))
    assert line == {
        "type": "message",
        "id": "a",
        "parentId": None,
        "message": {
            "role": "assistant",
            "content": "Hi.",
            "reasoningContent": "Hm.",
            "toolCalls": [{"id": "c1", "function": {"name": "get", "arguments": '{"x":  "é"}'}}],
            "timestamp": 1500,
            "model": "m",
        },
    }


def test_fields_of_others_are_kept() -> None:
    line = {"type": "message", "id": "a", "parentId": None, "cwd": "x", "message": {"role": "user", "content": "Hi."}}
    assert sts.message_line(sts.read_entry(line, 3)) == line


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ({}, "without a message"),
        ({"message": []}, "without a message"),
        ({"message": {"role": "robot"}}, "'robot'"),
        ({"message": {"role": "user", "content": 5}}, "neither text nor a list"),
        ({"message": {"role": "user", "content": [{"type": "hologram"}]}}, "hologram"),
        ({"message": {"role": "user", "content": ["x"]}}, "no part"),
        ({"message": {"role": "user", "name": 1}}, "name is no text"),
        ({"id": 3, "message": {"role": "user"}}, "id is no text"),
        ({"message": {"role": "assistant", "toolCalls": {}}}, "no list"),
        ({"message": {"role": "assistant", "toolCalls": [{"id": "x"}]}}, "function's name"),
        ({"message": {"role": "assistant", "toolCalls": [{"function": {"name": "f", "arguments": 1}}]}}, "no object"),
    ],
)
def test_what_is_wrong_is_named(line: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        sts.read_entry(line, 1)


@given(
    st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), WORDS), lambda inner: st.lists(inner, max_size=3))
)
def test_any_value_anywhere_is_read_or_refused(value: Any) -> None:
    names = ("role", "content", "reasoningContent", "toolCalls", "toolCallId", "name", "timestamp", "model", "usage")
    for name in names:
        for line in ({"message": {"role": "assistant", name: value}}, {name: value, "message": {"role": "user"}}):
            with contextlib.suppress(ValueError):
                sts.read_entry(line, 1)


@pytest.mark.parametrize(
    "generated",
    [
        {"scaffoldText": "", "scaffoldIds": [], "ids": [-1], "answerStart": 0},
        {"scaffoldText": "", "scaffoldIds": [], "ids": [1 << 40], "answerStart": 0},
        {"scaffoldText": "", "scaffoldIds": [True], "ids": [], "answerStart": 0},
        {"scaffoldText": "", "scaffoldIds": [], "ids": [1], "answerStart": 2},
        {"scaffoldText": 1, "scaffoldIds": [], "ids": [1], "answerStart": 0},
        {"ids": [1]},
        "ids",
    ],
)
def test_ids_that_make_no_sense_are_left_out(generated: Any) -> None:
    line = {"message": {"role": "assistant", "content": "Hi."}, "generated": generated}
    assert sts.read_entry(line, 1).message.generated is None


def test_arguments_that_are_no_object_are_kept_as_written() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "[1, "}}
    read = sts.read_entry({"message": {"role": "assistant", "toolCalls": [call]}}, 1)
    assert read.message.tool_calls == (ToolCall("c", "f", {}, "[1, "),)
    assert again(read).message == read.message


def test_half_a_surrogate_pair_is_kept() -> None:
    entry = Entry(Message("user", (TextPart("\ud800"),)), 1, id="a")
    assert again(entry) == entry


@pytest.mark.parametrize("fault", ["raw", "usage"])
def test_planted_faults_show(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ToolCall("c", "f", {"a": 1}, '{"a":1}')
    entry = Entry(Message("assistant", tool_calls=(call,)), 1, id="a", usage=Usage(4))
    if fault == "raw":
        monkeypatch.setattr(sts, "_object", lambda text: {"a": 1} if text == '{"a": 1}' else None)
        monkeypatch.setattr(
            sts, "_call_json", lambda call: {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
        )
    else:
        monkeypatch.setattr(sts, "_USAGE", ("cached_tokens",))
    assert again(entry) != entry
