"""Replies as a model of each family writes them, sampled ids included, without a model."""

from __future__ import annotations

import json
import random
from typing import Any

from mlxchat.engine.markers import MarkerParser
from mlxchat.engine.messages import Generated, Message, TextPart, ToolCall
from mlxchat.engine.prompts import Prompt, PromptRenderer
from mlxchat.engine.tool_calls import reply_of
from support.tiny_tokenizer import Family

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
WITH_TOOLS: tuple[Family, ...] = ("qwen3", "qwen36", "gemma4", "gpt_oss")
REASONING: tuple[Family, ...] = ("qwen3", "qwen36", "gemma4", "gpt_oss", "deepseek_r1")


def spell(family: Family, opened: bool, reasoning: str, text: str, city: str | None = None) -> str:
    """What the model samples behind the generation prompt, its end token left out."""
    if family == "gpt_oss":
        return _harmony(reasoning, text, city)
    call = "" if city is None else _call(family, city)
    if family == "gemma4":
        return (f"<|channel>thought\n{reasoning}\n<channel|>" if reasoning else "") + text + call
    if family not in REASONING:
        return text
    thought = f"{reasoning}\n</think>\n\n"
    if opened:
        return thought + text + call
    return (f"<think>\n{thought}" if reasoning else "") + text + call


def _call(family: Family, city: str) -> str:
    if family == "qwen36":
        return (
            f"\n<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
        )
    if family == "gemma4":
        return f'<|tool_call>call:get_weather{{city:<|"|>{city}<|"|>}}<tool_call|>'
    # not the template's spelling: no space behind the colons
    return '\n<tool_call>\n{"name":"get_weather","arguments":' + json.dumps({"city": city}) + "}\n</tool_call>"


def _harmony(reasoning: str, text: str, city: str | None) -> str:
    thought = f"<|channel|>analysis<|message|>{reasoning}<|end|><|start|>assistant" if reasoning else ""
    if city is None:
        return f"{thought}<|channel|>final<|message|>{text}"
    return (
        thought
        + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        + json.dumps({"city": city})
    )


def sampled_ids(renderer: PromptRenderer, text: str, rng: random.Random) -> list[int]:
    """Ids that decode to `text` but, as a model's may, need not be the canonical ones."""
    ids: list[int] = []
    at = 0
    encoder = renderer.encoder
    cuts = {start for start, _ in encoder.separators.find(text)} | {end for _, end in encoder.separators.find(text)}
    cuts |= {at for at in range(1, len(text)) if rng.random() < 0.1}
    inside = {at for start, end in encoder.separators.find(text) for at in range(start + 1, end)}
    for cut in [*sorted(cuts - inside - {0}), len(text)]:
        ids += renderer.encoder.between(None, text[at:cut], "")
        at = cut
    return ids


def generate(
    renderer: PromptRenderer,
    tokenizer: Any,
    prompt: Prompt,
    text: str,
    rng: random.Random,
    *,
    interrupted: bool = False,
) -> Message:
    """The assistant message that the engine would make of sampling `text`."""
    ids = sampled_ids(renderer, text, rng)
    parser, detokenizer, segments = MarkerParser(renderer.markers, prompt.reasoning_open), tokenizer.detokenizer, []
    for one in ids:
        detokenizer.add_token(one)
        segments += parser.feed(detokenizer.last_segment)
    detokenizer.finalize()
    if rest := detokenizer.last_segment:
        segments += parser.feed(rest)
    segments += parser.finish()
    reply = reply_of(segments, renderer.call_reader(TOOLS))
    return Message(
        "assistant",
        (TextPart(reply.text),) if reply.text else (),
        reasoning=reply.reasoning or None,
        tool_calls=tuple(ToolCall("abcdefghi", call.name, call.arguments) for call in reply.calls),
        generated=Generated(prompt.scaffold_text, prompt.scaffold_ids, tuple(ids), min(parser.answer_start, len(ids))),
        interrupted=interrupted,
    )
