"""What people, tools and models of each family say in the rewind tests, a few words at a time."""

from __future__ import annotations

import json
import random
from typing import Any

from mlxchat.engine.options import RequestOptions, SamplingOptions, ThinkingOptions
from support.tiny_tokenizer import Family

_WORDS = [
    "the",
    "user",
    "asks",
    "a",
    "question",
    "about",
    "cache",
    "and",
    "model",
    "gives",
    "an",
    "answer",
    "window",
    "layer",
    "block",
    "prefix",
    "tool",
    "call",
    "name",
    "test",
    "reader",
    "writer",
    "capital",
    "world",
    "system",
    "function",
    "get",
    "weather",
    "return",
    "this",
    "that",
    "argument",
    "two",
    "three",
    "indented",
    "text",
]

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "the weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
)
OTHER_TOOLS: tuple[dict[str, Any], ...] = (
    {**TOOLS[0], "function": {**TOOLS[0]["function"], "name": "ask_reader", "description": "ask"}},
)

_AT_MOST = SamplingOptions(max_tokens=900)  # a reply whose end token isn't one must not run on

KEEPS_IN_LOOP: tuple[Family, ...] = ("qwen3", "qwen36", "gemma4", "gpt_oss")
"""Families whose reasoning stays in the prompt while a tool loop runs; the other one drops it at once."""
HAS_OFF_SWITCH: tuple[Family, ...] = ("qwen3", "qwen36", "gemma4")


def says(first: str, count: int = 24) -> str:
    """`first`, then words that follow from it: two texts with another first word differ from the first token on."""
    rng = random.Random(first)
    return " ".join([first, *(rng.choice(_WORDS) for _ in range(count - 1))])


def options(family: Family, *, tools: bool = False, thinking: bool | None = True) -> RequestOptions:
    """Reasoning on (as the family's template has it by itself, where it does) or off."""
    enabled = thinking if family == "gemma4" or not thinking else None
    return RequestOptions(_AT_MOST, ThinkingOptions(enabled=enabled), TOOLS if tools else ())


def thought(family: Family, text: str, reasoning: str = "") -> str:
    """An answer as sampled behind the generation prompt, the end token left out; reasoned if `reasoning` is given."""
    if family == "gpt_oss":
        return _channel("analysis", reasoning) + f"<|channel|>final<|message|>{text}"
    return _reasoned(family, reasoning) + text


def calls(family: Family, city: str, reasoning: str = "") -> str:
    """A tool call as sampled, reasoned if `reasoning` is given."""
    arguments = json.dumps({"city": city})
    if family == "gpt_oss":
        return (
            _channel("analysis", reasoning)
            + f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{arguments}"
        )
    if family == "qwen36":
        call = f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
    elif family == "gemma4":
        call = f'<|tool_call>call:get_weather{{city:<|"|>{city}<|"|>}}<tool_call|>'
    elif family == "deepseek_r1":
        call = f"call get_weather {arguments}"
    else:
        call = f'<tool_call>\n{{"name":"get_weather","arguments":{arguments}}}\n</tool_call>'
    return _reasoned(family, reasoning) + call


def _channel(name: str, text: str) -> str:
    return f"<|channel|>{name}<|message|>{text}<|end|><|start|>assistant" if text else ""


def _reasoned(family: Family, reasoning: str) -> str:
    if family == "gemma4":
        return f"<|channel>thought\n{reasoning}\n<channel|>" if reasoning else ""
    if not reasoning:
        return ""
    opening = "<think>\n" if family == "qwen3" else ""
    return f"{opening}{reasoning}\n</think>\n\n"


END: dict[Family, str] = {
    "qwen3": "<|im_end|>",
    "qwen36": "<|im_end|>",
    "gemma4": "<turn|>",
    "gpt_oss": "<|return|>",
    "deepseek_r1": "<｜end▁of▁sentence｜>",
}
CALL_END: dict[Family, str] = {**END, "gpt_oss": "<|call|>", "gemma4": "<|tool_response>"}
OTHER_END: dict[Family, str] = {"qwen3": "<|endoftext|>", "qwen36": "<|endoftext|>", "gemma4": "<eos>"}
"""Another token that ends an answer, which history never shows. gpt_oss has that by itself: return becomes end."""
