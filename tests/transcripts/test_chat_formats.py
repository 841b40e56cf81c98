"""What chat logs and data sets are read into: OpenAI's two interfaces, agentperf, ShareGPT, llm, gptme, LM Studio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlxchat.engine.messages import ImagePart, TextPart
from mlxchat.transcripts.model import Transcript, Usage
from mlxchat.transcripts.reading import read
from support.transcripts import fixture, roles, said, sample

pytestmark = pytest.mark.plain


def of_lines(folder: Path, *rows: object) -> Transcript:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path)


class TestOpenAI:
    def test_a_conversation_per_line(self) -> None:
        weather, sums = fixture("openai_conversations.jsonl").conversations
        assert (weather.id, weather.title, weather.requests[0].tools[0]["function"]["name"]) == (
            *("weather-1", "Weather", "weather"),
        )
        system, user, call, _, answer = (entry.message for entry in weather.entries)
        assert (system.role, weather.entries[0].extra) == ("system", {"role": "developer"})
        assert user.content[1] == ImagePart("data:image/png;base64,iVBORw0KGgo=")
        assert (call.tool_calls[0].arguments, call.tool_calls[0].raw) == ({"city": "Ulm"}, '{"city":  "Ulm"}')
        assert (call.content, call.reasoning) == ((), "Ask the tool.")
        assert (answer.reasoning, answer.text) == ("It said dry.", "No.")
        assert sums.entries[1].message.reasoning == "Easy."
        assert [(len(r.messages), r.answer is None) for r in sums.requests] == [(1, False), (3, True)]

    def test_rows_that_go_on_with_each_other_are_requests(self) -> None:
        main, title = fixture("openai_requests.jsonl").conversations
        assert [request.answer.text if request.answer else None for request in main.requests] == [
            "",
            "One file: x.py.",
            None,
        ]
        assert [len(request.tools) for request in main.requests] == [1, 1, 0]
        assert main.requests[2].max_tokens == 64
        assert [said(message) for message in title.requests[0].messages] == [
            ("system", "Name this chat."),
            ("user", "List the files."),
        ]

    def test_interleaved_requests_come_in_file_order(self) -> None:
        assert [request.line for _, request in fixture("openai_requests.jsonl").requests] == [1, 2, 3, 4]

    def test_an_edited_history_stays_with_its_conversation(self, tmp_path: Path) -> None:
        one, other, first = ({"role": "user", "content": words} for words in ("1", "2", "0"))
        answer = {"role": "assistant", "content": "a"}
        rows = [[first], [first, answer, one], [first, answer, other]]
        [conversation] = of_lines(tmp_path, *({"messages": row} for row in rows)).conversations
        assert [len(request.messages) for request in conversation.requests] == [1, 3, 3]
        assert [entry.parent_id for entry in conversation.entries] == [None, "m1", "m2", "m2"]

    def test_a_response_beside_the_request_is_its_answer(self) -> None:
        one, two = (conversation.requests[0] for conversation in fixture("openai_logged.jsonl").conversations)
        assert one.answer is not None
        assert two.answer is not None
        assert (one.answer.text, one.usage) == ("1", Usage(9, 4, 1))
        assert (two.answer.reasoning, two.usage) == ("Count.", Usage(9, None, 5, 3))

    def test_a_completion_may_be_text_alone(self, tmp_path: Path) -> None:
        row = {"messages": [{"role": "user", "content": "?"}], "completion": "!", "conversation_id": 7}
        [conversation] = of_lines(tmp_path, row).conversations
        assert conversation.id == "7"
        assert conversation.requests[0].answer is not None
        assert conversation.requests[0].answer.text == "!"

    def test_rows_of_the_anthropic_interface(self) -> None:
        [conversation] = fixture("anthropic_rows.jsonl").conversations
        assert [said(entry.message) for entry in conversation.entries] == [
            ("system", "You are an agent."),
            ("user", "List."),
            ("assistant", ""),
            ("tool", "x.py"),
            ("user", "Go on."),
            ("assistant", "x.py is all."),
        ]
        function = conversation.requests[0].tools[0]["function"]
        assert function == {"name": "ls", "description": "", "parameters": {"type": "object"}}

    def test_equal_messages_of_many_requests_are_one_entry(self, tmp_path: Path) -> None:
        rows = [[{"role": "user", "content": str(at)} for at in range(count)] for count in (1, 2, 3, 4)]
        [conversation] = of_lines(tmp_path, *({"messages": row} for row in rows)).conversations
        assert (len(conversation.requests), len(conversation.entries)) == (4, 4)

    def test_an_unknown_role_is_counted(self, tmp_path: Path) -> None:
        transcript = of_lines(
            tmp_path, {"messages": [{"role": "user", "content": "x"}, {"role": "elf", "content": "y"}]}
        )
        assert [(line.line, line.why) for line in transcript.skipped] == [(1, "a message with the role 'elf'")]

    def test_encrypted_reasoning_details_are_hidden(self, tmp_path: Path) -> None:
        details = [{"type": "reasoning.encrypted", "data": "x"}]
        row = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "reasoning_details": details}]
        assert of_lines(tmp_path, {"messages": row}).conversations[0].requests[0].hidden_reasoning


class TestAgentperf:
    def test_answers_come_from_the_next_row_or_the_recorded_calls(self) -> None:
        first, second = fixture("agentperf.jsonl").conversations[0].requests
        assert first.answer is not None
        assert second.answer is not None
        assert [call.id for call in first.answer.tool_calls] == ["k1"]
        assert [(call.id, call.arguments) for call in second.answer.tool_calls] == [("k2", {"room": 5})]
        assert (first.max_tokens, second.max_tokens) == (32, 256)
        assert (first.delay_ms, second.delay_ms) == (50, 0)

    def test_the_real_rows(self) -> None:
        requests = sample("openai-chat/aa-mini-library-01.jsonl").conversations[0].requests
        assert [len(request.messages) for request in requests] == [2, 5, 8, 11, 14, 17]
        assert [len(request.tools) for request in requests] == [4, 4, 4, 4, 4, 0]
        assert [len(r.answer.tool_calls) if r.answer else None for r in requests] == [1, 1, 1, 1, 1, None]


class TestResponses:
    def test_a_chain_by_previous_response_id_is_put_together(self) -> None:
        first, second = fixture("responses.jsonl").conversations[0].requests
        assert [said(message) for message in second.messages] == [
            ("system", "Be brief."),
            ("user", "List files."),
            ("assistant", ""),
            ("tool", "a.py"),
        ]
        assert first.usage == Usage(20, 0, 15, 10)
        assert first.hidden_reasoning
        assert first.tools[0]["function"]["name"] == "ls"

    def test_an_unknown_predecessor_is_said(self) -> None:
        assert fixture("responses.jsonl").missing == (
            "earlier turns (previous_response_id)",
            "reasoning (encrypted)",
        )

    def test_a_bare_list_of_items(self) -> None:
        [conversation] = fixture("responses_items.json").conversations
        answer = conversation.entries[1].message
        assert (answer.reasoning, answer.text) == ("Say hi.", "Hi.")


class TestShareGPT:
    def test_calls_and_results_are_told_from_the_text(self) -> None:
        conversation = fixture("sharegpt.jsonl").conversations[0]
        answer = conversation.entries[2].message
        assert (answer.reasoning, answer.content) == ("Two calls.", ())
        assert [(c.id, c.name, c.arguments) for c in answer.tool_calls] == [
            ("call_1", "stock", {"of": "A"}),
            ("call_2", "stock", {"of": "B"}),
        ]
        results = [entry.message for entry in conversation.entries[3:5]]
        assert [(m.tool_call_id, m.name, m.text) for m in results] == [
            ("call_1", "stock", "1"),
            ("call_2", "stock", "2"),
        ]
        assert conversation.requests[0].tools[0]["function"]["name"] == "stock"

    def test_a_call_that_is_no_json_stays_text(self) -> None:
        assert fixture("sharegpt.jsonl").conversations[1].entries[1].message.text == (
            "Not a call: <tool_call>oops</tool_call>"
        )


class TestLlmLogs:
    def test_a_tool_loop_is_put_together_in_the_order_of_ids(self) -> None:
        conversation = fixture("llm_logs.json").conversations[0]
        assert [said(entry.message) for entry in conversation.entries] == [
            ("system", "Be brief."),
            ("user", "one two three\nHow many words?"),
            ("assistant", ""),
            ("tool", "3"),
            ("assistant", "Three."),
        ]
        assert conversation.entries[1].message.content[1] == ImagePart("http://example.com/a.png")
        assert conversation.requests[1].usage == Usage(30, 12, 4)
        assert conversation.requests[1].max_tokens == 50
        assert conversation.title == "Words"

    def test_the_real_log(self) -> None:
        transcript = sample("llm-logs/llm_0.36_logs.json")
        assert roles(transcript) == "suatauaua"
        assert [len(request.tools) for request in transcript.conversations[0].requests] == [1, 1, 0, 0]
        assert [len(request.messages) for request in transcript.conversations[0].requests] == [2, 4, 6, 8]


class TestGptme:
    def test_a_system_message_in_the_middle_is_a_tool_result(self) -> None:
        entries = fixture("gptme.jsonl").conversations[0].entries
        assert [entry.message.role for entry in entries] == ["system", "user", "assistant", "tool", "assistant"]
        assert (entries[2].message.reasoning, entries[2].message.text) == ("ls and wc", "```shell\nls | wc -l\n```")

    def test_usage_holds_the_cached_tokens_either_way(self) -> None:
        entries = fixture("gptme.jsonl").conversations[0].entries
        assert [entries[2].usage, entries[4].usage] == [Usage(100, 64, 12), Usage(135, 120, 2)]

    def test_the_real_log(self) -> None:
        assert roles(sample("gptme/conversation.jsonl")) == "suatauata"


class TestLmStudio:
    def test_the_selected_version_and_the_steps_of_an_answer(self) -> None:
        entries = fixture("lm_studio.conversation.json").conversations[0].entries
        assert [said(entry.message) for entry in entries[:3]] == [
            ("system", "Be nice."),
            ("user", "Weather in Ulm?"),
            ("assistant", ""),
        ]
        assert entries[2].message.reasoning == "Use the tool."
        assert [(c.id, c.arguments) for c in entries[2].message.tool_calls] == [("77", {"city": "Ulm"})]
        assert entries[3].message.tool_call_id == "77"
        assert (entries[4].message.text, entries[4].usage) == ("It is dry.", Usage(95, None, 5))

    def test_images_outside_the_file_are_said_to_be_missing(self) -> None:
        assert "images (files outside the transcript)" in fixture("lm_studio.conversation.json").missing


def test_text_parts_are_kept_apart(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = of_lines(tmp_path, {"messages": [{"role": "user", "content": parts}]}).requests[0][1].messages[0]
    assert message.content == (TextPart("a"), TextPart("b"))
