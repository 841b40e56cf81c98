"""Tool segments of every family through mlx-lm's parsers; what can't be read stays words."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine.markers import Markers, Segment, parse
from mlxchat.engine.messages import user
from mlxchat.engine.prompts import PromptRenderer
from mlxchat.engine.template_files import resolve
from mlxchat.engine.tool_calls import ToolCallReader, new_call_id, reply_of
from support.replies import TOOLS, WITH_TOOLS, generate, spell
from support.tiny_tokenizer import Family

pytestmark = pytest.mark.exact
Loader = Callable[[Family], Any]
JSON = Markers(tool=("<tool_call>", "</tool_call>"))


@pytest.mark.parametrize("family", WITH_TOOLS)
def test_a_sampled_call_is_read(tokenizer_of: Loader, family: Family) -> None:
    tokenizer = tokenizer_of(family)
    renderer = PromptRenderer(tokenizer)
    prompt = renderer.render([user("Weather?")], tools=TOOLS)
    raw = spell(family, prompt.reasoning_open, "hm", "", "São Paulo")
    message = generate(renderer, tokenizer, prompt, raw, random.Random(0))
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("get_weather", {"city": "São Paulo"})]
    assert (message.reasoning, message.text) == ("hm", "")


def test_the_built_in_template_asks_for_json(tokenizer_of: Loader) -> None:
    tokenizer = tokenizer_of("gemma3")
    renderer = PromptRenderer(tokenizer, *resolve("chatml-think", tokenizer))
    prompt = renderer.render([user("Weather?")], tools=TOOLS)
    raw = 'hm\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    message = generate(renderer, tokenizer, prompt, raw, random.Random(0))
    assert (message.text, message.tool_calls[0].arguments) == ("I look.", {"a": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool_call>{not json}</tool_call>", "could not be read"),
        ('<tool_call>{"arguments": {}}</tool_call>', "could not be read"),
        ('<tool_call>{"name": "f", "arguments": 3}</tool_call>', "could not be read"),
        ('<tool_call>["f"]</tool_call>', "could not be read"),
        ('<tool_call>{"name": "f", "argum', "cut off"),
    ],
)
def test_a_malformed_call_stays_words(text: str, problem: str) -> None:
    import json

    segments, _ = parse(JSON, f"I call {text}")
    reply = reply_of(segments, ToolCallReader(JSON, lambda body, tools: json.loads(body)))
    assert reply.calls == ()
    assert reply.text == f"I call {text}"
    assert problem in reply.notices[0]


@given(st.text())
def test_no_text_raises(text: str) -> None:
    for markers in (JSON, Markers(harmony=True), Markers()):
        reply_of([Segment("tool", text)], ToolCallReader(markers, None))


def test_several_calls_and_their_ids() -> None:
    def two(body: str, tools: Any) -> Any:
        return [{"name": "f", "arguments": '{"a": 1}', "id": "functions.f:0"}, {"name": "g"}]

    names = iter(["first", "second"])
    parsed = ToolCallReader(JSON, two, new_id=lambda: next(names)).read("<tool_call>x</tool_call>")
    assert [(call.id, call.name, call.arguments) for call in parsed.calls] == [
        ("functions.f:0", "f", {"a": 1}),
        ("first", "g", {}),
    ]
    assert parsed.calls[0].raw == "<tool_call>x</tool_call>"


def test_ids_are_nine_letters_and_digits() -> None:
    made = {new_call_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(one) == 9 and one.isalnum() for one in made)
