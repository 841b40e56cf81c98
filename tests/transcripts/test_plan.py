"""Planning without weights: what is counted as fed, anchors, padding, what a file leaves out, remedies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlxchat.engine import template_files
from mlxchat.engine.messages import ImagePart, Message, TextPart, assistant, user
from mlxchat.engine.messages import system as system_message
from mlxchat.engine.options import ThinkingOptions
from mlxchat.engine.prompts import PromptRenderer
from mlxchat.errors import ModelError
from mlxchat.transcripts.anchors import Anchors
from mlxchat.transcripts.heading import Coming, Share, images_in, skipped_lines
from mlxchat.transcripts.jobs import NO_IMAGE, Supplied, jobs_of
from mlxchat.transcripts.model import Conversation, Request, Skipped, Transcript, Usage
from mlxchat.transcripts.padding import Filler, padding_of
from mlxchat.transcripts.plan import Planner
from mlxchat.transcripts.planned import Planned
from mlxchat.transcripts.prompts import Prompts
from mlxchat.transcripts.remedies import costliest
from mlxchat.transcripts.settings import Settings
from mlxchat.transcripts.synthetic import SyntheticIds
from mlxchat.transcripts.weightless import Weightless
from support.replays import row, rows, transcript
from support.scripted import model_folder
from support.tiny_tokenizer import Family, load

pytestmark = pytest.mark.exact

LONG = "The window, the layer, the block and the prefix. " * 12
NO_ADDED = Supplied()


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    return prompts_of(tmp_path_factory.mktemp("chatml"), "chatml", "chatml-think")


def prompts_of(folder: Path, family: Family, template: str | None = None) -> Prompts:
    tokenizer = load(folder, family)
    source = template_files.resolve(template, tokenizer)[0]
    return Prompts(PromptRenderer(tokenizer, source), tokenizer, ThinkingOptions(), "2026-01-31")


def plan(prompts: Prompts, made: Transcript, supplied: Supplied = NO_ADDED, **more: Any) -> list[Planned]:
    planner = Planner(prompts, more.pop("limit", 8192), recurrent=more.pop("recurrent", False), **more)
    return [planner.plan(job) for job in jobs_of(made, supplied)]


def talk(*answers: Message, first: str = LONG) -> Transcript:
    """A conversation in which each answer is followed by another question."""
    messages: list[Message] = [system_message(first), user("What is it?")]
    requests = []
    for number, answer in enumerate(answers, 1):
        requests.append(Request(tuple(messages), answer, number))
        messages += [answer, user(f"And {number}?")]
    return transcript(*requests)


def test_a_plan_of_a_plain_conversation(prompts: Prompts) -> None:
    first, second, third = plan(prompts, talk(assistant("Paris.", "Hm."), assistant("Yes.", "So."), assistant("No.")))
    assert (first.common_prefix_tokens, first.ideal_tokens, first.divergence) == (0, 0, "first")
    assert [second.divergence, third.divergence] == ["reasoning_dropped", "reasoning_dropped"]
    assert second.ideal_tokens > first.prompt_tokens - 10
    assert 0 < second.again_tokens < 30
    assert second.difference is not None
    assert second.ttft_ms(100) == pytest.approx(10 * second.new_tokens)


def test_an_edited_history_and_a_changed_system_are_told_apart(prompts: Prompts) -> None:
    head = (system_message(LONG), user(LONG))
    edited = (system_message(LONG), user("Short."), assistant("Yes."), user("On."))
    other = (system_message(LONG + "Now."), user(LONG))
    answer = assistant("Yes.", "Hm.")
    made = transcript(Request(head, answer, 1), Request(edited, answer, 2), Request(other, answer, 3))
    assert [one.divergence for one in plan(prompts, made)] == ["first", "history_edited", "system_or_tools_changed"]
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    tools = transcript(Request(head, answer, 1, (tool,)), Request((*head, answer, user("On.")), answer, 2))
    second = plan(prompts, tools)[1]
    assert (second.divergence, second.tools_changed) == ("system_or_tools_changed", True)
    assert second.again_tokens > 100


def test_recurrent_layers_go_back_to_anchors_only(prompts: Prompts) -> None:
    made = talk(assistant("Paris is the capital of France.", "Hm."), assistant("No.", "So."))
    branch = Request((*made.conversations[0].requests[0].messages[:1], user("What is then?")), assistant("x"), 3)
    made = transcript(*made.conversations[0].requests, branch)
    plain, exact = plan(prompts, made), plan(prompts, made, recurrent=True)
    assert [one.common_prefix_tokens for one in plain] == [one.common_prefix_tokens for one in exact]
    assert exact[2].ideal_tokens < plain[2].ideal_tokens
    assert exact[2].ideal_tokens > 100


def test_anchors_are_found_by_their_ids_alone() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 9, 3000).astype(np.int32)
    anchors = Anchors()
    anchors.add(ids, [5, 256, 700])
    assert [anchors.best(ids, limit) for limit in (4, 5, 255, 256, 699, 2047, 2048, 3000)] == [
        *(0, 5, 5, 256, 256, 700, 2048, 3000)
    ]
    other = ids.copy()
    other[600] = 10
    assert anchors.best(other, 3000) == 256
    assert anchors.best(ids[:3], 3) == 0


def test_a_long_request_is_named_and_leaves_no_trace(prompts: Prompts) -> None:
    made = talk(assistant("Yes."), assistant("No."))
    huge = Request((system_message(LONG * 9),), assistant("x"), 2)
    first, second = made.conversations[0].requests
    together = plan(prompts, transcript(first, huge, second), limit=900)
    assert [one.outcome for one in together] == ["run", "skipped_too_long", "run"]
    assert "the context is 900" in together[1].why
    assert together[2].ideal_tokens == plan(prompts, made, limit=900)[1].ideal_tokens


def test_nothing_before_the_answer(prompts: Prompts) -> None:
    (only,) = plan(prompts, transcript(Request((), assistant("Hello."), 1)))
    assert only.outcome == "no_request"


# -- what a file leaves out ------------------------------------------------------------------------------------------


def recorded(prompt: int | None, hidden: bool = False, **more: int) -> dict[str, Any]:
    return {"usage": Usage(prompt_tokens=prompt, **more), "hidden_reasoning": hidden}


def test_padding_fills_up_to_the_recorded_lengths(prompts: Prompts) -> None:
    head = (user("Well?"),)
    answer = assistant("Yes.")
    made = transcript(
        Request(head, answer, 1, **recorded(500, hidden=True, completion_tokens=60, reasoning_tokens=50)),
        Request((*head, answer, user("On.")), assistant("No."), 2, **recorded(600)),
    )
    bare = plan(prompts, made)
    padded = plan(prompts, made, padding=padding_of(prompts))
    assert bare[0].prompt_tokens < 40
    assert abs(padded[0].prompt_tokens - 500) <= 12
    assert padded[0].padded_tokens == pytest.approx(500 - bare[0].prompt_tokens, abs=12)
    assert padded[0].answer_tokens > bare[0].answer_tokens + 40
    assert bare[1].padded_tokens == 0
    assert padded[1].padded_tokens == padded[0].padded_tokens, "the template drops the synthetic reasoning"
    assert padded[1].ideal_tokens > 450
    share = Share.of(padded, ("system prompt",))
    assert share.percent is not None
    assert 3 < share.percent < 15


def test_padding_leaves_alone_what_is_there(prompts: Prompts) -> None:
    made = transcript(Request((system_message(LONG), user("Well?")), assistant("Yes.", "Hm."), 1, **recorded(20, True)))
    assert plan(prompts, made, padding=padding_of(prompts)) == plan(prompts, made)


@pytest.mark.parametrize("count", [0, 1, 7, 100, 5000])
def test_the_filler_has_as_many_tokens_as_asked(prompts: Prompts, count: int) -> None:
    filler = Filler(prompts.encode)
    made = np.array(prompts.encode(filler.text(count)), np.int32)
    assert abs(len(made) - count) <= 1
    assert filler.count(made) == (len(made) if count >= 8 else 0)


def test_pictures_stand_as_words_and_are_counted() -> None:
    message = Message("user", (ImagePart("x.png"), TextPart("What is this?")))
    made = transcript(Request((message,), assistant("A cat."), 1), Request((message, user("On.")), None, 2))
    jobs = jobs_of(made, NO_ADDED)
    assert NO_IMAGE in jobs[0].messages[0].text
    assert images_in(jobs) == 1
    assert jobs[1].messages[0] is jobs[0].messages[0], "the same message is the same object"


def test_what_the_user_adds_goes_where_nothing_is() -> None:
    made = transcript(Request((user("a"),), None, 1), Request((system_message("b"), user("a")), None, 2, ({"x": 1},)))
    first, second = jobs_of(made, Supplied("Mine.", ({"y": 1},)))
    assert (first.messages[0].text, first.tools) == ("Mine.", ({"y": 1},))
    assert (second.messages[0].text, second.tools) == ("b", ({"x": 1},))


def test_jobs_run_in_the_order_of_time() -> None:
    def at(time: str) -> Request:
        return Request((user(time),), None, 1, time=time)

    main = Conversation("a", (at("2026-01-01T00:00:01Z"), at("2026-01-01T00:00:03Z")))
    side = Conversation("b", (at("2026-01-01T00:00:02Z"),), "side")
    jobs = jobs_of(Transcript("x", "x", (main, side)), NO_ADDED)
    assert [(job.number, job.conversation, job.turn) for job in jobs] == [(1, "a", 1), (2, "b", 1), (3, "a", 2)]
    assert len(jobs_of(Transcript("x", "x", (main, side)), NO_ADDED, 2)) == 2


def test_skipped_lines_are_grouped_by_reason() -> None:
    skipped = (Skipped(3, "not JSON"), Skipped(7, "no role"), Skipped(9, "not JSON"))
    assert skipped_lines(Transcript("x", "x", (), skipped)) == [("not JSON", 2, 3), ("no role", 1, 7)]


def test_synthetic_ids_repeat_with_their_names() -> None:
    made = SyntheticIds(600, range(20))
    one, other = (
        jobs_of(
            transcript(Request((), None, 1, usage=Usage(prompt_tokens=n), hash_ids=names, block_tokens=16)), NO_ADDED
        )[0]
        for n, names in ((40, ("a", "b", "c")), (55, ("a", "b", "d")))
    )
    a, b = made.prompt(one), made.prompt(other)
    assert (len(a), len(b)) == (40, 55)
    assert a[:32].tolist() == b[:32].tolist()
    assert a[32:].tolist() != b[32:40].tolist()
    assert a.min() >= 20


# -- what is made of a plan ------------------------------------------------------------------------------------------


def test_what_is_coming(prompts: Prompts) -> None:
    planned = plan(prompts, talk(assistant("Yes."), assistant("No.")))
    coming = Coming.of(planned, 10.0)
    assert (coming.requests, coming.fit) == (2, 2)
    assert coming.seconds == pytest.approx((coming.prefill_tokens + coming.answer_tokens) / 10)
    twice = Coming.of(planned, 10.0, frozenset({2})).seconds
    assert twice is not None
    assert twice == pytest.approx(coming.seconds + planned[1].prompt_tokens / 10)
    assert Coming.of(planned, None).seconds is None


def test_the_costliest_come_first_and_no_cheap_ones() -> None:
    found = costliest(rows())
    assert [one.row.planned.job.number for one in found] == [6, 4]
    assert "checkpoints" in found[0].cause
    assert "--cache-bytes" in found[0].remedy
    assert "reasoning" in found[1].cause
    many = [row(n, divergence="history_edited", again_tokens=n) for n in range(1, 9)]
    assert [one.tokens for one in costliest(many)] == [8, 7, 6, 5, 4]
    tools = costliest([row(1, divergence="system_or_tools_changed", again_tokens=5, tools_changed=True)])
    assert "tools" in tools[0].cause
    thought = costliest([row(1, divergence="reasoning_dropped", again_tokens=5, scaffold_lost=True)])
    assert "--no-think" in thought[0].remedy
    assert costliest([row(1, divergence="append"), row(2, divergence="first")]) == []


def test_a_folder_without_weights_is_enough(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", "qwen3_5", "qwen36")
    (folder / "model.safetensors").unlink()
    made = Weightless.load(str(folder), None, Settings(max_context=500))
    assert (made.name, made.limit) == ("m", 500)
    assert made.planner._recurrent
    with pytest.raises(ModelError):
        Weightless.load(str(tmp_path / "absent"), None, Settings())


@pytest.mark.parametrize("family", ["qwen3", "gpt_oss", "gemma4"])
def test_every_family_can_be_planned(tmp_path: Path, family: Family) -> None:
    found = plan(prompts_of(tmp_path, family), talk(assistant("Yes.", "Hm."), assistant("No.", "So.")))
    assert found[1].common_prefix_tokens >= found[0].prompt_tokens - 20
