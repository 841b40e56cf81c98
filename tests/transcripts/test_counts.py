"""What the readers find in whole files, counted by hand."""

from __future__ import annotations

import pytest
from mlxchat.transcripts.formats.registry import FORMATS, by_name, names
from mlxchat.transcripts.reading import read
from support.transcripts import FIXTURES, Counts, counts, fixture, sample

pytestmark = pytest.mark.plain

# name → format, conversations, messages, requests, tool calls, reasoning, hidden, usages, skipped
HAND_WRITTEN = {
    "openai_conversations.jsonl": Counts("openai", 2, 8, 4, 1, 3, 0, 0, 0),
    "openai_requests.jsonl": Counts("openai", 2, 8, 4, 1, 0, 0, 0, 0),
    "openai_logged.jsonl": Counts("openai", 2, 4, 2, 0, 1, 0, 2, 0),
    "openai_messages.jsonl": Counts("openai", 1, 5, 2, 0, 0, 0, 0, 0),
    "anthropic_rows.jsonl": Counts("openai", 1, 6, 2, 1, 1, 0, 0, 0),
    "agentperf.jsonl": Counts("agentperf", 1, 5, 2, 2, 0, 0, 0, 0),
    "claude": Counts("claude-code", 3, 12, 5, 2, 1, 1, 4, 4),
    "codex": Counts("codex", 2, 14, 5, 3, 1, 1, 1, 1),
    "sts.jsonl": Counts("sts", 1, 9, 4, 2, 1, 1, 1, 0),
    "sts_plain.jsonl": Counts("sts", 1, 2, 1, 0, 1, 0, 0, 1),
    "pi.jsonl": Counts("pi", 1, 9, 4, 1, 1, 0, 1, 1),
    "pi_v1.jsonl": Counts("pi", 1, 2, 1, 0, 0, 0, 0, 0),
    "atif.json": Counts("atif", 2, 9, 4, 1, 1, 0, 2, 1),
    "swe_agent.traj": Counts("swe-agent", 1, 5, 2, 2, 0, 0, 0, 0),
    "mini_swe_agent.traj.json": Counts("mini-swe-agent", 1, 5, 2, 0, 0, 0, 1, 1),
    "sharegpt.jsonl": Counts("sharegpt", 2, 8, 3, 2, 1, 0, 0, 2),
    "responses.jsonl": Counts("openai-responses", 2, 7, 3, 1, 0, 1, 2, 0),
    "responses_items.json": Counts("openai-responses", 1, 2, 1, 0, 1, 0, 0, 0),
    "inspect.json": Counts("inspect", 3, 8, 4, 1, 1, 1, 1, 1),
    "llm_logs.json": Counts("llm-logs", 2, 7, 3, 1, 1, 0, 2, 0),
    "gptme.jsonl": Counts("gptme", 1, 5, 2, 0, 1, 0, 2, 0),
    "lm_studio.conversation.json": Counts("lm-studio", 1, 6, 2, 1, 1, 0, 2, 1),
    "mooncake.jsonl": Counts("hash-trace", 2, 0, 2, 0, 0, 0, 0, 1),
    "weka.json": Counts("hash-trace", 2, 0, 3, 0, 0, 0, 0, 1),
}
REAL = {
    "claude-code/agtrace_claude_session.jsonl": Counts("claude-code", 1, 15, 6, 4, 6, 0, 6, 0),
    "codex/agtrace_codex_session.jsonl": Counts("codex", 1, 15, 7, 5, 0, 6, 7, 0),
    "gptme/conversation.jsonl": Counts("gptme", 1, 9, 4, 0, 1, 0, 2, 0),
    "llm-logs/llm_0.36_logs.json": Counts("llm-logs", 1, 9, 4, 1, 0, 0, 4, 0),
    "mini-swe-agent/github_issue.traj.json": Counts("mini-swe-agent", 1, 22, 10, 0, 0, 0, 0, 0),
    "openai-chat/aa-mini-library-01.jsonl": Counts("agentperf", 1, 17, 6, 5, 0, 0, 0, 0),
    "swe-agent/marshmallow-1867_function_calling.traj": Counts("swe-agent", 1, 24, 11, 11, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_a_hand_written_file(name: str) -> None:
    assert counts(fixture(name)) == HAND_WRITTEN[name]


@pytest.mark.parametrize("name", REAL)
def test_a_real_file(name: str) -> None:
    assert counts(sample(name)) == REAL[name]


def test_every_fixture_is_counted_and_every_format_has_one() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == set(HAND_WRITTEN)
    assert {found.format for found in HAND_WRITTEN.values()} == set(names())


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_the_format_can_be_named(name: str) -> None:
    found = HAND_WRITTEN[name].format
    assert counts(fixture(name, found)) == HAND_WRITTEN[name]
    assert by_name(found).title


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_file()))
def test_no_other_format_claims_a_file_first(name: str) -> None:
    """Whatever the order: only formats that are told apart by it may share a mark."""
    from mlxchat.transcripts.formats.base import Head
    from mlxchat.transcripts.json_lines import JsonRecords

    with (FIXTURES / name).open("rb") as stream:
        records = JsonRecords(stream, name)
        values = tuple(record.value for record in records)
    claims = [known.name for known in FORMATS if known.recognise(Head(values, records.array))]
    assert claims[0] == HAND_WRITTEN[name].format
    assert set(claims[1:]) <= {"openai", "openai-responses"}


def test_a_request_answered_by_each_assistant_message() -> None:
    for name in HAND_WRITTEN:
        for conversation in read(FIXTURES / name).conversations:
            answers = [request.answer for request in conversation.requests if request.answer is not None]
            spoken = [entry.message for entry in conversation.entries if entry.message.role == "assistant"]
            assert answers == spoken


def test_the_page_on_formats_names_each() -> None:
    page = (FIXTURES.parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"| `{name}` |" not in page] == []
