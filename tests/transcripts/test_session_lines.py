"""Lines of a saved chat: what goes in comes out, ids included, and what is wrong is named."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine.messages import FilePart, Generated, ImagePart, Message, TextPart, ToolCall
from mlxchat.transcripts import session_lines
from mlxchat.transcripts.formats.fields import time_of
from mlxchat.transcripts.model import Entry, Usage
from mlxchat.transcripts.session_appender import encoded

pytestmark = pytest.mark.plain

WORDS = st.text(max_size=20)
SOME = st.text(min_size=1, max_size=20)
IDS = st.lists(st.integers(0, 200_000), max_size=5).map(tuple)
PARTS = st.one_of(
    st.builds(TextPart, SOME), st.builds(FilePart, SOME, WORDS), st.builds(ImagePart, st.just("images/ab.png"))
)
ARGUMENTS = st.dictionaries(WORDS, st.one_of(st.integers(), WORDS, st.none(), st.lists(st.booleans())), max_size=3)
CALLS = st.builds(lambda name, found: ToolCall(name, name, found, json.dumps(found, indent=1)), SOME, ARGUMENTS)
GENERATED = st.builds(lambda text, a, b: Generated(text, a, b, len(b)), WORDS, IDS, IDS)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(PARTS, max_size=3).map(tuple),
    reasoning=st.one_of(st.none(), SOME),
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    tool_call_id=st.one_of(st.none(), SOME),
    name=st.one_of(st.none(), SOME),
    interrupted=st.booleans(),
)
TIMES = st.one_of(st.none(), st.integers(10**12, 4 * 10**12).map(time_of))
USAGES = st.one_of(st.none(), st.builds(Usage, st.one_of(st.none(), st.integers(0, 10**6)), st.integers(0, 9)))
ENTRIES = st.builds(
    Entry, MESSAGES, st.just(7), id=SOME, parent_id=st.one_of(st.none(), SOME), time=TIMES, model=SOME, usage=USAGES
)


def again(entry: Entry) -> Entry:
    return session_lines.read_entry(json.loads(encoded(session_lines.message_line(entry))), entry.line)


@given(ENTRIES, st.one_of(st.none(), GENERATED))
def test_an_entry_comes_back_whole(entry: Entry, generated: Generated | None) -> None:
    if entry.message.role == "assistant":
        entry = replace(entry, message=replace(entry.message, generated=generated))
    back = again(entry)
    assert back == entry
    assert back.message.generated == entry.message.generated


def test_arguments_are_a_string_as_the_format_says() -> None:
    message = Message("assistant", tool_calls=(ToolCall("c", "f", {"x": "é"}),))
    line = session_lines.message_line(Entry(message, 1, id="a"))
    assert line["message"]["toolCalls"][0]["function"]["arguments"] == '{"x": "é"}'
    assert again(Entry(message, 1, id="a")).message.tool_calls[0].arguments == {"x": "é"}


def test_a_moment_is_milliseconds() -> None:
    line = session_lines.message_line(Entry(Message("user"), 1, id="a", time=session_lines.now()))
    assert isinstance(line["message"]["timestamp"], int)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ({}, "without a message"),
        ({"message": []}, "without a message"),
        ({"message": {"role": "robot"}}, "'robot'"),
        ({"message": {"content": "x"}}, "'None'"),
    ],
)
def test_what_is_wrong_is_named(line: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        session_lines.read_entry(line, 1)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), WORDS)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3)))
def test_any_value_anywhere_is_read_or_refused(value: Any) -> None:
    names = ("role", "content", "reasoningContent", "toolCalls", "toolCallId", "name", "timestamp", "model", "usage")
    for name in (*names, "id", "parentId", "generated", "interrupted", "message"):
        for line in ({"message": {"role": "assistant", name: value}}, {"message": {"role": "user"}, name: value}):
            with contextlib.suppress(ValueError):
                session_lines.read_entry(line, 1)


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
    assert session_lines.read_entry(line, 1).message.generated is None


def test_half_a_surrogate_pair_is_kept() -> None:
    entry = Entry(Message("user", (TextPart("\ud800"),)), 1, id="a")
    assert again(entry) == entry


def test_planted_lost_ids_show(monkeypatch: pytest.MonkeyPatch) -> None:
    generated = Generated("", (), (1, 2), 0)
    entry = Entry(Message("assistant", (TextPart("x"),), generated=generated), 1, id="a")
    assert again(entry).message.generated == generated
    monkeypatch.setattr(session_lines, "_are_ids", lambda values: False)
    assert again(entry).message.generated is None
