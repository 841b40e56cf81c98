"""What the sessions of coding agents are read into: Claude Code, Codex, Pi."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlxchat.engine.messages import ImagePart, TextPart
from mlxchat.transcripts.model import Usage
from mlxchat.transcripts.reading import read
from support.transcripts import FIXTURES, fixture, roles, sample

pytestmark = pytest.mark.plain

PNG = "data:image/png;base64,iVBORw0KGgo="


class TestClaudeCode:
    def test_one_answer_spread_over_lines_is_one_message_counted_once(self) -> None:
        answer = fixture("claude").conversations[0].entries[1]
        assert answer.message.reasoning == "Two reads at once."
        assert [(call.name, call.arguments, call.raw) for call in answer.message.tool_calls] == [
            ("Read", {"path": "a.py"}, None),
            ("Task", {"prompt": "Look for tests."}, None),
        ]
        assert answer.usage == Usage(124, 100, 77)
        assert (answer.line, answer.id, answer.model) == (5, "a1", "claude-x")

    def test_the_results_of_parallel_calls_are_kept_though_the_tree_forks_there(self) -> None:
        entries = fixture("claude").conversations[0].entries
        assert [(e.message.tool_call_id, e.message.text) for e in entries[2:4]] == [
            ("t1", "def a(): ..."),
            ("t2", "none found"),
        ]
        assert entries[3].extra["is_error"] is True
        assert entries[3].extra["agentId"] == "77ab"

    def test_an_image_comes_with_its_message(self) -> None:
        first = fixture("claude").conversations[0].entries[0].message
        assert first.content == (TextPart("Fix the parser."), ImagePart(PNG))

    def test_what_is_skipped_is_named(self) -> None:
        assert [(line.file, line.line, line.why) for line in fixture("claude").skipped] == [
            ("5f2c.jsonl", 4, "an abandoned branch"),
            ("5f2c.jsonl", 10, "an error shown in place of an answer"),
            ("5f2c.jsonl", 18, "a line of type 'brand-new-kind'"),
            ("5f2c.jsonl", 19, "it is cut off"),
        ]

    def test_a_compaction_replaces_the_history_of_later_requests(self) -> None:
        main = fixture("claude").conversations[0]
        assert [[m.text for m in request.messages] for request in main.requests] == [
            ["Fix the parser."],
            ["Fix the parser.", "", "def a(): ...", "none found"],
            ["So far: the parser was fixed.", "Anything left?"],
        ]
        assert [request.hidden_reasoning for request in main.requests] == [False, True, False]

    def test_a_missing_parent_is_taken_to_be_the_line_before(self) -> None:
        main = fixture("claude").conversations[0]
        assert main.entries[-1].message.text == "No."
        assert main.entries[-1].parent_id == "u9"

    def test_side_chains_and_sub_agents_are_joined_to_the_session(self) -> None:
        transcript = fixture("claude")
        assert [(c.id, c.kind, c.parent, c.file) for c in transcript.conversations] == [
            ("5f2c", "main", None, "5f2c.jsonl"),
            ("5f2c/x1", "side", "5f2c", "5f2c.jsonl"),
            ("5f2c/77ab", "subagent", "5f2c", "agent-77ab.jsonl"),
        ]
        assert transcript.conversations[0].title == "Fix the parser"

    def test_requests_come_in_the_order_of_their_times_whatever_conversation_they_are_of(self) -> None:
        order = [conversation.id for conversation, _ in fixture("claude").requests]
        assert order == ["5f2c", "5f2c/77ab", "5f2c/x1", "5f2c", "5f2c"]

    def test_the_real_session(self) -> None:
        transcript = sample("claude-code/agtrace_claude_session.jsonl")
        [main] = transcript.conversations
        assert roles(transcript) == "uatatauatatauuu"
        assert [request.usage.prompt_tokens for request in main.requests if request.usage] == [
            *(10 + 3893 + 12135, 14 + 458 + 16028, 13 + 169 + 16486, 10 + 333 + 16028, 14 + 154 + 16361),
            13 + 151 + 16515,
        ]
        assert [len(request.messages) for request in main.requests] == [1, 3, 5, 7, 9, 11]
        assert transcript.missing == ("system prompt", "tool schemas")


class TestCodex:
    def test_neighbouring_items_are_one_answer(self) -> None:
        answer = fixture("codex").conversations[0].entries[3]
        assert answer.message.reasoning == "I should list the files."
        assert answer.message.text == "Let me see."
        assert [(c.id, c.name, c.arguments["command"]) for c in answer.message.tool_calls] == [
            ("l1", "local_shell", ["ls"])
        ]
        assert answer.extra["reasoning_summary"] == "Looking"
        assert (answer.usage, answer.model) == (Usage(500, 400, 30, 12), "gpt-x")

    def test_a_custom_call_and_a_call_whose_arguments_are_no_json_keep_their_text(self) -> None:
        main, sub = fixture("codex").conversations
        custom = main.entries[5].message.tool_calls[0]
        broken = sub.entries[1].message.tool_calls[0]
        assert (custom.arguments, custom.raw) == ({"input": "*** Begin Patch"}, "*** Begin Patch")
        assert (broken.arguments, broken.raw) == ({"input": "not json"}, "not json")

    def test_the_base_instructions_are_the_system_prompt(self) -> None:
        main = fixture("codex").conversations[0]
        assert [message.text for message in main.requests[0].messages] == ["You are Codex.", "Rules.", "What is here?"]
        assert main.entries[1].extra == {"role": "developer"}

    def test_a_compaction_replaces_the_history_of_later_requests(self) -> None:
        last = fixture("codex").conversations[0].requests[-1]
        assert [message.text for message in last.messages] == [
            *("You are Codex.", "Rules.", "What is here?", "A patch was applied.", "Sure?")
        ]
        assert last.answer is not None
        assert last.answer.text == "Yes."

    def test_a_replacement_history_is_taken_as_it_stands(self, tmp_path: Path) -> None:
        lines = (FIXTURES / "codex/2026/03/01/rollout-a.jsonl").read_text().splitlines()
        value = json.loads(lines[14])
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Earlier."}]}
        value["payload"]["replacement_history"] = [said]
        lines[14] = json.dumps(value)
        (tmp_path / "r.jsonl").write_text("\n".join(lines))
        requests = read(tmp_path / "r.jsonl").conversations[0].requests
        assert len(requests) == 4
        assert [message.text for message in requests[-1].messages] == ["You are Codex.", "Earlier.", "Sure?"]

    def test_a_spawned_session_is_joined_to_its_parent(self) -> None:
        assert [(c.id, c.kind, c.parent) for c in fixture("codex").conversations] == [
            ("s-a", "main", None),
            ("s-b", "subagent", "s-a"),
        ]

    def test_the_real_rollout(self) -> None:
        transcript = sample("codex/agtrace_codex_session.jsonl")
        [main] = transcript.conversations
        assert roles(transcript) == "uuatatauatatata"
        usages = [request.usage for request in main.requests]
        assert [(u.prompt_tokens, u.cached_tokens, u.completion_tokens) for u in usages if u] == [
            *((3505, 3072, 101), (3711, 3072, 40), (3815, 3584, 26), (3708, 3072, 37)),
            *((3845, 3072, 128), (4017, 3072, 38), (4139, 3968, 38)),
        ]
        assert [request.hidden_reasoning for request in main.requests] == [True, True, False, True, True, True, True]
        assert {request.model for request in main.requests} == {"gpt-5.1-codex-max"}
        assert transcript.missing == ("system prompt", "tool schemas", "reasoning (encrypted)")


class TestPi:
    def test_the_parts_of_an_answer(self) -> None:
        answer = fixture("pi.jsonl").conversations[0].entries[1]
        assert answer.message.reasoning == "pytest."
        assert answer.message.text == "Running."
        assert answer.message.tool_calls[0].arguments == {"command": "pytest"}
        assert answer.usage == Usage(105, 90, 8)

    def test_after_a_compaction_a_request_sees_the_summary_and_what_was_kept(self) -> None:
        requests = fixture("pi.jsonl").conversations[0].requests
        assert [message.text for message in requests[2].messages] == ["Tests pass.", "$ date\nSunday", "Commit."]

    def test_a_branch_sees_only_its_own_past(self) -> None:
        conversation = fixture("pi.jsonl").conversations[0]
        texts = [message.text for message in conversation.requests[3].messages]
        assert texts == ["Run the tests.", "Running.", "2 passed", "All pass.", "Or rather push."]
        assert conversation.title == "Test and push"

    def test_a_session_of_the_first_version_is_a_plain_list(self) -> None:
        conversation = fixture("pi_v1.jsonl").conversations[0]
        assert conversation.requests[0].messages[0].content == (TextPart("Hello"), ImagePart(PNG))
        assert conversation.entries[1].parent_id == conversation.entries[0].id
