"""What benchmark trajectories and traces are read into: ATIF, SWE-agent, mini-swe-agent, Inspect AI, block hashes."""

from __future__ import annotations

import pytest
from mlxchat.transcripts.model import Usage
from support.transcripts import fixture, roles, said, sample

pytestmark = pytest.mark.plain


class TestAtif:
    def test_steps_observations_and_metrics(self) -> None:
        main = fixture("atif.json").conversations[0]
        assert [said(entry.message) for entry in main.entries] == [
            ("system", "You operate a terminal."),
            ("user", "Make hello.txt."),
            ("assistant", "Writing."),
            ("tool", "exit 0"),
            ("assistant", "Check."),
            ("user", "hello.txt is there"),
            ("assistant", "Done."),
        ]
        assert main.entries[2].message.reasoning == "echo will do."
        assert main.entries[3].message.tool_call_id == "q1"
        assert main.requests[1].usage == Usage(340, 300, 4)
        assert [request.model for request in main.requests] == ["m", "m", "m2"]
        assert main.requests[0].tools[0]["function"]["name"] == "sh"

    def test_the_trajectories_of_sub_agents(self) -> None:
        sub = fixture("atif.json").conversations[1]
        assert (sub.id, sub.kind, sub.parent) == ("run-7-sub", "subagent", "run-7")


class TestSweAgent:
    def test_a_step_with_a_query_has_exactly_that_prompt(self) -> None:
        second = fixture("swe_agent.traj").conversations[0].requests[1]
        assert [said(message) for message in second.messages] == [
            ("system", "Fix issues."),
            ("user", "ISSUE: crash"),
            ("assistant", "Look."),
            ("tool", "(1 line omitted)"),
        ]
        assert second.answer is not None
        assert second.answer.tool_calls[0].name == "submit"
        assert second.messages[3].tool_call_id == "b1"

    def test_without_queries_it_is_the_history(self) -> None:
        transcript = sample("swe-agent/marshmallow-1867_function_calling.traj")
        assert roles(transcript) == "su" + "at" * 11
        assert [len(request.messages) for request in transcript.conversations[0].requests] == list(range(2, 24, 2))
        assert all(len(r.answer.tool_calls) == 1 for r in transcript.conversations[0].requests if r.answer)
        assert transcript.missing == ("tool schemas",)


class TestMiniSweAgent:
    def test_what_the_agent_says_at_its_exit_is_no_message(self) -> None:
        transcript = fixture("mini_swe_agent.traj.json")
        assert roles(transcript) == "suaua"
        assert transcript.conversations[0].requests[0].usage == Usage(70, 16, 9)
        assert transcript.conversations[0].requests[0].model == "m"

    def test_a_bare_list(self) -> None:
        assert roles(sample("mini-swe-agent/github_issue.traj.json")) == "su" + "au" * 10


class TestInspect:
    def test_model_events_are_the_requests(self) -> None:
        main, grader, plain = fixture("inspect.json").conversations
        assert [said(message) for message in main.requests[1].messages] == [
            ("user", "A long question."),
            ("assistant", "Let me run it."),
            ("tool", "1"),
        ]
        first = main.requests[0]
        assert first.answer is not None
        assert (first.answer.reasoning, first.answer.tool_calls[0].arguments) == ("Use py.", {"code": "1"})
        assert (first.usage, first.max_tokens) == (Usage(13, 8, 7, 2), 99)
        assert first.tools[0]["function"]["parameters"] == {"type": "object"}
        assert (grader.kind, grader.parent, grader.requests[0].model) == ("side", "q1", "openai/grader")
        assert (plain.id, plain.requests[0].hidden_reasoning) == ("q2/2", True)


class TestHashTraces:
    def test_mooncake_rows_are_lengths_and_names_of_blocks(self) -> None:
        first, second = (conversation.requests[0] for conversation in fixture("mooncake.jsonl").conversations)
        assert first.synthetic
        assert (first.hash_ids, first.block_tokens, first.messages) == (("0", "1", "2"), 512, ())
        assert (first.usage, first.max_tokens) == (Usage(1100, None, 52), 52)
        assert (second.delay_ms, second.time) == (250, "1970-01-01T00:00:03.000Z")

    def test_a_weka_trace_with_a_sub_agent(self) -> None:
        main, sub = fixture("weka.json").conversations
        assert [request.hash_ids for request in main.requests] == [
            ("trace_1:1", "trace_1:2"),
            ("trace_1:1", "trace_1:2", "trace_1:3"),
        ]
        assert {request.block_tokens for request in (*main.requests, *sub.requests)} == {64}
        assert (sub.kind, sub.parent, sub.requests[0].hash_ids) == ("subagent", "trace_1", ("trace_1:9",))

    def test_the_requests_of_a_trace_come_in_the_order_of_their_times(self) -> None:
        assert [conversation.id for conversation, _ in fixture("weka.json").requests] == ["trace_1", "sub_1", "trace_1"]
