"""Session traces written as OpenAI rows and read back: nothing is lost, whatever is in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.engine.messages import FilePart, ImagePart, Message, TextPart, ToolCall
from mlxchat.transcripts import openai_rows, sts_lines
from mlxchat.transcripts.model import Conversation, Entry, Transcript, Usage
from mlxchat.transcripts.reading import read
from mlxchat.transcripts.trees import tree_requests
from mlxchat.transcripts.writing import OutputFormat, render, write_file
from support.transcripts import FIXTURES, fixture, plain, sample

pytestmark = pytest.mark.plain

WITH_TEXT = sorted(path.name for path in FIXTURES.iterdir() if path.name not in ("mooncake.jsonl", "weka.json"))
TREES = ["sts.jsonl", "sts_plain.jsonl"]
TOOLS = ({"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}},)


def written(transcript: Transcript, path: Path, to: OutputFormat) -> Transcript:
    write_file(path, render(transcript, to, document=path.suffix == ".json"))
    return read(path)


def kept(transcript: Transcript) -> list[Any]:
    """All that a session trace holds of its conversations."""
    return [
        (c.id, c.kind, c.parent, c.title, c.extra, [plain(entry) for entry in c.entries], plain_tools(c))
        for c in transcript.conversations
    ]


def plain_tools(conversation: Conversation) -> list[Any]:
    return [request.tools for request in conversation.requests if request.answer is not None]


def around(transcript: Transcript, folder: Path, suffix: str = ".jsonl") -> tuple[str, str, Transcript]:
    """(the session trace, the same after a way through OpenAI rows, what the rows were read into)."""
    first = written(transcript, folder / "a.sts.jsonl", "sts")
    through = written(first, folder / f"b{suffix}", "openai")
    written(through, folder / "c.sts.jsonl", "sts")
    return (folder / "a.sts.jsonl").read_text(), (folder / "c.sts.jsonl").read_text(), through


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("name", TREES)
def test_a_session_trace_comes_back_from_openai_rows(tmp_path: Path, name: str, suffix: str) -> None:
    transcript = fixture(name)
    before, after, through = around(transcript, tmp_path, suffix)
    assert after == before
    assert through.format == "openai"
    assert kept(through) == kept(read(tmp_path / "a.sts.jsonl"))
    assert [entry.message for entry in through.conversations[0].entries] == [
        entry.message for entry in transcript.conversations[0].entries
    ]


@pytest.mark.parametrize("name", TREES)
def test_a_session_trace_is_written_as_it_was_read(tmp_path: Path, name: str) -> None:
    again = written(fixture(name), tmp_path / "a.sts.jsonl", "sts")
    lines = [entry.line for entry in fixture(name).conversations[0].entries]
    assert kept(relined(again, lines)) == kept(fixture(name))


def relined(transcript: Transcript, lines: list[int]) -> Transcript:
    """The same with other line numbers: skipped lines aren't written."""
    [conversation] = transcript.conversations
    entries = tuple(replace(entry, line=line) for entry, line in zip(conversation.entries, lines, strict=True))
    return replace(transcript, conversations=(replace(conversation, entries=entries),))


def test_what_was_unknown_is_on_its_line_again(tmp_path: Path) -> None:
    _, after, _ = around(fixture("sts.jsonl"), tmp_path)
    assert '"generated": {"ids": [1, 2]}' in after
    assert '"mood": "calm"' in after
    assert '"timestamp": "yesterday"' in after
    assert '"timestamp": 1772359200123' in after
    assert '"sampling": {"temperature": 0}' in after


@pytest.mark.parametrize(
    "name", sorted(p.name for p in FIXTURES.iterdir() if "mooncake" not in p.name and "weka" not in p.name)
)
def test_every_format_survives_the_same_way(tmp_path: Path, name: str) -> None:
    for at, conversation in enumerate(fixture(name).conversations):
        folder = tmp_path / str(at)
        folder.mkdir()
        before, after, _ = around(replace(fixture(name), conversations=(conversation,)), folder)
        assert after == before


@pytest.mark.parametrize(
    "name",
    [
        *("claude-code/agtrace_claude_session.jsonl", "codex/agtrace_codex_session.jsonl", "gptme/conversation.jsonl"),
        *("llm-logs/llm_0.36_logs.json", "mini-swe-agent/github_issue.traj.json"),
        *("openai-chat/aa-mini-library-01.jsonl", "swe-agent/marshmallow-1867_function_calling.traj"),
    ],
)
def test_the_real_files_survive_too(tmp_path: Path, name: str) -> None:
    before, after, _ = around(sample(name), tmp_path)
    assert after == before


def without(made: Callable[..., dict[str, Any]], name: str) -> Callable[..., dict[str, Any]]:
    """The same function, forgetting one field."""
    return lambda *given: {field: value for field, value in made(*given).items() if field != name}


@pytest.mark.parametrize("fault", ["parentId", "extra", "at", "branches", "spelling"])
def test_planted_faults_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The comparison above turns red if a tree is flattened, a field forgotten, a branch or a spelling dropped."""
    if fault == "branches":
        leaves = openai_rows.Paths.leaves
        monkeypatch.setattr(openai_rows.Paths, "leaves", lambda self: leaves(self)[-1:])
    elif fault == "spelling":
        monkeypatch.setattr(openai_rows, "written_arguments", lambda call: None)
        monkeypatch.setattr(openai_rows, "_call", without(openai_rows._call, "mlxchat"))
    else:
        monkeypatch.setattr(openai_rows, "_beside", without(openai_rows._beside, fault))
    before, after, _ = around(fixture("sts.jsonl"), tmp_path)
    assert after != before


# -- made-up conversations ------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), max_size=8)
some_words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
parts = st.one_of(
    some_words.map(TextPart),
    st.just(TextPart("<think>a</think>b")),
    st.builds(FilePart, some_words, words),
    st.sampled_from(["data:image/png;base64,iVBORw0KGgo=", "http://x/y.png", "/no/where.png", "images/a.png"]).map(
        ImagePart
    ),
)
arguments = st.dictionaries(words, json_values, max_size=2)
spellings = st.sampled_from(['{"a":1}', ' {"a":  1} ', "<call>a</call>", ""])
calls = st.one_of(
    st.builds(ToolCall, words, words, arguments),
    st.builds(
        ToolCall, words, words, st.just({"a": 1}), st.sampled_from(['{"a":1}', ' {"a":  1} ', "<call>a</call>", ""])
    ),
    st.just(ToolCall("c", "n", {"input": "free text"}, "free text")),
    st.just(ToolCall("c", "n", {}, "")),
)
counts = st.none() | st.integers(0, 10**6)
names = st.sampled_from(
    [
        *("type", "id", "message", "extra", "usage", "tools", "role", "content", "mlxchat", "line", "interrupted"),
        *("at", "x", "harness"),
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """A tree of messages with everything that an entry can hold."""
    entries: list[Entry] = []
    for at in range(draw(st.integers(1, 6))):
        role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
        speaks = role == "assistant"
        message = Message(
            role,  # type: ignore[arg-type]
            tuple(draw(st.lists(parts, max_size=2))),
            reasoning=draw(st.none() | some_words) if speaks else None,
            tool_calls=tuple(draw(st.lists(calls, max_size=2))) if speaks else (),
            tool_call_id=draw(st.none() | some_words) if role == "tool" else None,
            name=draw(st.none() | some_words),
            interrupted=speaks and draw(st.booleans()),
        )
        usage = Usage(*draw(st.tuples(counts, counts, counts, counts)))
        entries.append(
            Entry(
                message,
                at + 2,
                id=f"e{at}",
                parent_id=draw(st.sampled_from([None, *(entry.id for entry in entries)])) if at else None,
                time=draw(st.sampled_from([None, "2026-03-01T10:00:00.000Z", "2026-03-01T10:00:00Z", "noon"])),
                model=draw(st.none() | some_words),
                usage=draw(st.sampled_from([None, usage])) if usage != Usage() else None,
                hidden_reasoning=draw(st.booleans()),
                extra=draw(st.dictionaries(names, json_values | st.dictionaries(names, json_values), max_size=2)),
            )
        )
    tree = tuple(entries)
    extra = draw(st.dictionaries(st.sampled_from(["harness", "model", "cwd"]), some_words, max_size=2))
    return Conversation(
        draw(some_words), tree_requests(tree, TOOLS), title=draw(st.none() | some_words), entries=tree, extra=extra
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversations())
def test_a_made_up_conversation_survives(tmp_path: Path, conversation: Conversation) -> None:
    transcript = Transcript("sts", "made up", (conversation,))
    before, after, through = around(transcript, tmp_path)
    assert after == before
    [again] = through.conversations
    assert [entry.message for entry in again.entries] == [entry.message for entry in conversation.entries]
    assert [(e.id, e.usage, e.model, e.time, e.extra) for e in again.entries] == [
        (e.id, e.usage, e.model, e.time, e.extra) for e in conversation.entries
    ]


def test_times_are_numbers_where_that_says_the_same() -> None:
    assert sts_lines.stamp("2026-03-01T10:00:00.123Z") == 1772359200123
    assert sts_lines.stamp("2026-03-01T10:00:00Z") == "2026-03-01T10:00:00Z"
    assert sts_lines.stamp("noon") == "noon"
