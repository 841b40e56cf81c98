"""Prompts as later prompts see them: stable prefixes, splices, marks, over random conversations of every family."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.engine.messages import Message, system, tool_result, user
from mlxchat.engine.options import ThinkingOptions
from mlxchat.engine.prompts import MarkKind, Prompt, PromptRenderer
from mlxchat.engine.splice import Splicer
from mlxchat.engine.stable import Edge
from support.replies import REASONING, TOOLS, WITH_TOOLS, generate, spell
from support.tiny_tokenizer import FAMILIES, Family

pytestmark = pytest.mark.plain
Loader = Callable[[Family], Any]
SLOW_OK = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

_WORDS = st.sampled_from(
    ["Hello", " leading space", "\nleading newline", "two\n\nparagraphs", "déjà vu 😀", "trailing ", "x", "<b>bold</b>",
     "def f():\n    return 1\n", "What is the capital of France?", "1 2 3", "<"]
)  # fmt: skip
_REPLY = st.tuples(_WORDS, _WORDS, st.booleans(), st.booleans(), st.integers(0, 2))


class Chat:
    """A conversation that is played: every request is rendered, every reply sampled or imported."""

    def __init__(self, family: Family, tokenizer: Any, tools: bool, thinking: bool | None, seed: int) -> None:
        self.family = family
        self.tokenizer = tokenizer
        self.renderer = PromptRenderer(tokenizer)
        self.rng = random.Random(seed)
        self.tools = TOOLS if tools and family in WITH_TOOLS else []
        self.thinking = ThinkingOptions(enabled=thinking)
        self.messages: list[Message] = []
        self.requests: list[tuple[Prompt, str]] = []

    def request(self) -> Prompt:
        return self.renderer.render(self.messages, thinking=self.thinking, tools=self.tools, date="2026-01-31")

    def reply(self, reasoning: str, text: str, city: str | None, imported: bool, what_next: str) -> Message:
        prompt = self.request()
        self.requests.append((prompt, what_next))
        thoughtful = self.family in REASONING and self.thinking.enabled is not False
        raw = spell(self.family, prompt.reasoning_open, reasoning if thoughtful else "", text, city)
        message: Message = generate(self.renderer, self.tokenizer, prompt, raw, self.rng)
        self.messages.append(replace(message, generated=None) if imported else message)
        return message

    def play(self, turns: list[tuple[str, list[tuple[str, str, bool, bool, int]]]]) -> None:
        for question, replies in turns:
            self.messages.append(user(question))
            for reasoning, text, with_text, imported, steps in replies[:1]:
                for _ in range(steps if self.tools else 0):
                    words = text if with_text and self.family != "gpt_oss" else ""
                    self.reply(reasoning, words, "Paris", imported, "tool")
                    self.messages.append(tool_result("sunny\n", "abcdefghi", "get_weather"))
                self.reply(reasoning, text, None, imported, "user")
        self.messages.append(user("next"))


def assert_stable(chat: Chat) -> None:
    """What a prompt calls stable is a prefix of the next prompt; past marks stand where they were made."""
    last = chat.request()
    prompts = [prompt for prompt, _ in chat.requests] + [last]
    for (prompt, what_next), following in zip(chat.requests, prompts[1:], strict=True):
        kind: MarkKind = "stable_tool" if what_next == "tool" else "stable_user"
        position = prompt.position_of(kind)
        assert position is not None, kind
        assert np.array_equal(following.ids[:position], prompt.ids[:position])
    # each turn's own stable prefix, found again in the last prompt from the messages alone
    firsts = [
        prompt for index, (prompt, _) in enumerate(chat.requests) if index == 0 or chat.requests[index - 1][1] == "user"
    ]
    known = {prompt.position_of("stable_user") for prompt in firsts}
    assert set(last.positions("past_stable")) == known


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_OK)
@given(
    family=st.sampled_from(FAMILIES),
    with_system=st.booleans(),
    tools=st.booleans(),
    thinking=st.sampled_from([None, True, False]),
    turns=st.lists(st.tuples(_WORDS, st.lists(_REPLY, min_size=1, max_size=1)), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_the_stable_prefix_is_a_prefix_of_the_next_prompt(
    tokenizer_of: Loader, family: Family, with_system: bool, tools: bool, thinking: bool | None, turns: Any, seed: int
) -> None:
    chat = Chat(family, tokenizer_of(family), tools, thinking, seed)
    if with_system:
        chat.messages.append(system("You help."))
    chat.play(turns)
    assert_stable(chat)


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_fault_a_stable_prefix_one_token_too_long(
    tokenizer_of: Loader, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = Edge.position
    monkeypatch.setattr(Edge, "position", lambda edge, layout: true(edge, layout) + 1)
    chat = Chat(family, tokenizer_of(family), True, None, 0)
    chat.play([("Hello", [("think", "answer", False, False, 1)]), ("More", [("hm", "yes", False, False, 0)])])
    with pytest.raises(AssertionError):
        assert_stable(chat)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("thinking", [None, False])
def test_the_stable_prefix_reaches_the_reply(tokenizer_of: Loader, family: Family, thinking: bool | None) -> None:
    chat = Chat(family, tokenizer_of(family), False, thinking, 0)
    chat.messages = [system("You help."), user("Hello")]
    prompt = chat.request()
    position = prompt.position_of("stable_user")
    assert position == len(prompt.ids) - len(prompt.scaffold_ids)


def test_in_a_tool_loop_the_futures_part(tokenizer_of: Loader) -> None:
    for family in ("qwen3", "qwen36", "gemma4", "gpt_oss"):
        chat = Chat(family, tokenizer_of(family), True, True, 0)
        chat.messages = [user("Weather?")]
        chat.reply("I must call", "", "Paris", False, "tool")
        chat.messages.append(tool_result("sunny", "abcdefghi", "get_weather"))
        prompt = chat.request()
        assert prompt.position_of("stable_user") == chat.requests[0][0].position_of("stable_user"), family
        assert prompt.position_of("stable_tool") == len(prompt.ids) - len(prompt.scaffold_ids), family


# -- splices ---------------------------------------------------------------------------------------------------


def assert_kept(chat: Chat, prompt: Prompt, reply: Message, following: Prompt) -> None:
    """Nothing to rewind: the next prompt begins with the prompt and the ids as sampled."""
    assert reply.generated is not None
    fed = [*prompt.ids, *reply.generated.ids]
    assert list(following.ids[: len(fed)]) == fed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["The capital is Paris.", "Yes\n\nand no 😀", " spaced ", '{"a":1}'])
def test_an_answer_without_reasoning_keeps_its_ids(tokenizer_of: Loader, family: Family, text: str) -> None:
    for seed in range(5):
        chat = Chat(family, tokenizer_of(family), False, None, seed)
        chat.messages = [user("Hello")]
        if family in ("qwen36", "deepseek_r1", "gemma4"):
            continue  # their generation prompt opens or skips reasoning: see the next test
        reply = chat.reply("", text, None, False, "user")
        chat.messages.append(user("next"))
        assert_kept(chat, chat.requests[0][0], reply, chat.request())


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_OK)
@given(family=st.sampled_from(FAMILIES), reasoning=_WORDS, text=_WORDS, seed=st.integers(0, 1000))
def test_dropped_reasoning_leaves_the_answers_ids(
    tokenizer_of: Loader, family: Family, reasoning: str, text: str, seed: int
) -> None:
    chat = Chat(family, tokenizer_of(family), False, None, seed)
    chat.messages = [user("Hello")]
    reply = chat.reply(reasoning, text, None, False, "user")
    chat.messages.append(user("next"))
    following = chat.request()
    generated = reply.generated
    assert generated is not None
    answer = list(generated.ids[generated.answer_start :])
    position = chat.requests[0][0].position_of("stable_user")
    assert position is not None
    tail = list(following.ids[position:])
    # a header may have one or two tokens that could have merged with another answer
    assert any(tail[skip : skip + len(answer)] == answer for skip in range(4)), (answer, tail)


@pytest.mark.parametrize("family", WITH_TOOLS)
def test_a_tool_loop_keeps_every_id(tokenizer_of: Loader, family: Family) -> None:
    """The calls' JSON is spelled another way than the template's: the ids as sampled stay."""
    for seed in range(10):
        chat = Chat(family, tokenizer_of(family), True, True, seed)
        chat.messages = [user("Weather?")]
        reply = chat.reply("I must\n\ncall it", "", "Paris", False, "tool")
        assert reply.tool_calls[0].arguments == {"city": "Paris"}
        chat.messages.append(tool_result("sunny", "abcdefghi", "get_weather"))
        assert_kept(chat, chat.requests[0][0], reply, chat.request())


def test_planted_fault_no_splice(tokenizer_of: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Splicer, "splices", lambda *_: [])
    with pytest.raises(AssertionError):
        test_a_tool_loop_keeps_every_id(tokenizer_of, "qwen3")


def test_a_template_without_a_header_for_the_model(tokenizer_of: Loader) -> None:
    """Mistral's way: the model goes on right behind the token that ends the user's turn."""
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}"
        "{% else %}{{ m.content + '<|endoftext|>' }}{% endif %}{% endfor %}"
    )
    chat = Chat("chatml", tokenizer_of("chatml"), False, None, 4)
    chat.renderer = PromptRenderer(chat.tokenizer, source)
    chat.messages = [user("Hello")]
    reply = chat.reply("", "The capital of France", None, False, "user")
    chat.messages.append(user("next"))
    assert chat.requests[0][0].position_of("stable_user") == len(chat.requests[0][0].ids)
    assert_kept(chat, chat.requests[0][0], reply, chat.request())


def test_edges_are_remembered_only_for_the_same_messages(tokenizer_of: Loader) -> None:
    chat = Chat("qwen3", tokenizer_of("qwen3"), True, None, 1)
    chat.play([("Hello", [("think", "answer", False, False, 1)])])
    chat.request()
    # an equal conversation of other objects, and one that differs early
    for first in ("Hello", "Other"):
        chat.messages[0] = user(first)
        warm, cold = chat.request(), PromptRenderer(chat.tokenizer).render(chat.messages, tools=TOOLS)
        assert warm.marks == cold.marks


def test_an_edited_message_is_not_spliced(tokenizer_of: Loader) -> None:
    chat = Chat("qwen3", tokenizer_of("qwen3"), False, None, 0)
    chat.messages = [user("Hello")]
    reply = chat.reply("hm", "one answer", None, False, "user")
    other = replace(reply, content=system("other words").content)
    chat.messages = [user("Hello"), other, user("next")]
    prompt = chat.request()
    assert "other words" in chat.tokenizer.decode(prompt.ids)
    assert "one answer" not in chat.tokenizer.decode(prompt.ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_interrupted_answer_is_closed_by_the_template(tokenizer_of: Loader, family: Family) -> None:
    chat = Chat(family, tokenizer_of(family), False, None, 3)
    chat.messages = [user("Hello")]
    reply = chat.reply("hm", "The capital of Fra", None, False, "user")
    chat.messages.append(user("next"))
    text = chat.tokenizer.decode(chat.request().ids)
    end = chat.renderer._shape(ThinkingOptions(), ()).turn_end
    assert "The capital of Fra" + end in text
    assert reply.generated is not None


def test_interrupted_in_its_reasoning_then_kept_by_the_template(tokenizer_of: Loader) -> None:
    """A transcript may go on with a tool's result: then the thought stays and the template closes it."""
    chat = Chat("qwen36", tokenizer_of("qwen36"), True, None, 0)
    chat.messages = [user("Hello")]
    prompt = chat.request()
    cut = generate(chat.renderer, chat.tokenizer, prompt, "half a tho", chat.rng, interrupted=True)
    assert (cut.reasoning, cut.text) == ("half a tho", "")
    chat.messages += [cut, tool_result("sunny", "abcdefghi", "get_weather")]
    following = chat.request()
    fed = [*prompt.ids, *(cut.generated.ids if cut.generated else ())]
    assert list(following.ids[: len(fed)]) == fed
    assert "half a tho\n</think>\n\n<|im_end|>" in chat.tokenizer.decode(following.ids)


# -- ids, marks, purity ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_OK)
@given(family=st.sampled_from(FAMILIES), words=st.lists(_WORDS, min_size=1, max_size=5))
def test_ordinary_prompts_have_canonical_ids(tokenizer_of: Loader, family: Family, words: list[str]) -> None:
    tokenizer = tokenizer_of(family)
    messages = [
        user(text) if index % 2 == 0 else Message("assistant", user(text).content) for index, text in enumerate(words)
    ]
    if len(messages) % 2 == 0:
        messages.append(user("last"))
    prompt = PromptRenderer(tokenizer).render(messages)
    assert list(prompt.ids) == tokenizer.encode(prompt.text, add_special_tokens=False)
    assert prompt.ids.dtype == np.int32


@pytest.mark.parametrize("family", FAMILIES)
def test_marks_do_not_depend_on_what_was_rendered_before(tokenizer_of: Loader, family: Family) -> None:
    chat = Chat(family, tokenizer_of(family), True, None, 1)
    chat.play([("Hello", [("think", "answer", False, False, 1)]), ("More", [("hm", "yes", False, True, 0)])])
    warm = chat.request()
    chat.renderer = PromptRenderer(chat.tokenizer)
    cold = chat.request()
    assert warm.marks == cold.marks
    assert np.array_equal(warm.ids, cold.ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_siblings_share_the_prompt_up_to_the_users_words(tokenizer_of: Loader, family: Family) -> None:
    renderer = PromptRenderer(tokenizer_of(family))
    one, other = (renderer.render([system("You help."), user(text)], date="2026-01-31") for text in ("Hello", "What"))
    start = one.position_of("user_start")
    assert start == other.position_of("user_start")
    assert start is not None
    assert np.array_equal(one.ids[:start], other.ids[:start])
    assert one.ids[start] != other.ids[start]
    end = one.position_of("system_end")
    assert end is not None
    assert end <= start
    decoded = tokenizer_of(family).decode(one.ids[:end])
    assert "You help." in decoded


def test_no_system_turn_no_mark(tokenizer_of: Loader) -> None:
    for family in ("chatml", "qwen3", "gemma3"):
        prompt = PromptRenderer(tokenizer_of(family)).render([user("Hello")])
        assert prompt.position_of("system_end") is None, family


def test_only_recent_turns_are_marked(tokenizer_of: Loader) -> None:
    messages = [
        message for number in range(12) for message in (user(f"q{number}"), Message("assistant", user("a").content))
    ]
    prompt = PromptRenderer(tokenizer_of("qwen3")).render([*messages, user("last")])
    assert len(prompt.positions("past_stable")) == 8
    assert len(prompt.positions("user_start")) == 13


def test_the_date_is_pinned(tokenizer_of: Loader) -> None:
    renderer = PromptRenderer(tokenizer_of("gpt_oss"))
    assert "Current date: 2024-02-29" in renderer.render([user("Hi")], date="2024-02-29").text


@pytest.mark.parametrize(
    ("family", "thinking", "scaffold", "opened"),
    [
        ("qwen3", None, "", False),
        ("qwen3", False, "<think>\n\n</think>\n\n", False),
        ("qwen36", None, "<think>\n", True),
        ("qwen36", False, "<think>\n\n</think>\n\n", False),
        ("gemma4", True, "", False),
        ("gemma4", None, "<|channel>thought\n<channel|>", False),
        ("deepseek_r1", None, "<think>\n", True),
        ("gpt_oss", None, "", False),
    ],
)
def test_scaffold(tokenizer_of: Loader, family: Family, thinking: bool | None, scaffold: str, opened: bool) -> None:
    tokenizer = tokenizer_of(family)
    prompt = PromptRenderer(tokenizer).render([user("Hi")], thinking=ThinkingOptions(thinking))
    assert (prompt.scaffold_text, prompt.reasoning_open) == (scaffold, opened)
    assert tokenizer.decode(prompt.scaffold_ids) == scaffold
    if scaffold:
        assert list(prompt.ids[-len(prompt.scaffold_ids) :]) == list(prompt.scaffold_ids)


def test_reasoning_is_known_to_be_dropped(tokenizer_of: Loader) -> None:
    assert [PromptRenderer(tokenizer_of(family)).drops_reasoning() for family in REASONING] == [True] * 5
