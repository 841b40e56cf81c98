"""Messages as a chat template wants them, and the template itself: from plain data to text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date as Date  # noqa: N812
from typing import TYPE_CHECKING, Any

from ..errors import TemplateError
from .messages import ImagePart, Message, TextPart, ToolCall

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

Plain = dict[str, Any]

_DATE_FORMAT = re.compile(r"""strftime_now\(\s*(?:format\s*=\s*)?(['"])(.*?)\1""")
# shadows the library's function, so that a prompt does not change at midnight
_PINNED_DATE = "{% macro strftime_now(format) %}{{ pinned_dates.get(format, pinned_dates['']) }}{% endmacro +%}"
_HINT = "choose another with --template NAME|FILE"


class ChatTemplate:
    """A chat template bound to its tokenizer.

    source      Jinja text; None: the template that comes with the tokenizer
    label       its name in messages to the user
    """

    def __init__(self, tokenizer: TokenizerWrapper, source: str | None = None, label: str = "the model's template"):
        self._tokenizer = tokenizer
        self._given = source
        self._label = label
        if source is None and not tokenizer.has_chat_template:
            raise TemplateError(
                "the model has no chat template", "name one with --template, for example --template chatml"
            )

    def source(self, tools: Sequence[Plain] = ()) -> str:
        """The Jinja text in use; empty if the tokenizer renders with code of mlx-lm instead."""
        if self._given is not None:
            return self._given
        if self._rendered_by_code():
            return ""
        text: str = self._tokenizer.get_chat_template(None, list(tools) or None)
        return text

    def render(
        self,
        messages: Sequence[Plain],
        tools: Sequence[Plain] = (),
        *,
        generation: bool,
        thinking: bool | None = None,
        date: str | None = None,
    ) -> str:
        """The prompt's text. generation: end with what leads the model to answer. date: ISO, None for today.

        Raises TemplateError, one line with the cause, if the template refuses these messages in every spelling.
        """
        failure: Exception | None = None
        for spelling in _SPELLINGS:
            spelled = spelling(messages)
            if spelled is None:
                continue
            try:
                return self._render(spelled, tools, generation, thinking, date)
            except Exception as error:  # a template may fail in any way it likes
                failure = failure or error
        cause = " ".join(str(failure).split())[:300] or type(failure).__name__
        raise TemplateError(f"{self._label} can't render this conversation: {cause}", _HINT) from failure

    def _render(
        self, messages: list[Plain], tools: Sequence[Plain], generation: bool, thinking: bool | None, date: str | None
    ) -> str:
        settings: Plain = {} if thinking is None else {"enable_thinking": thinking}
        if self._given is None and self._rendered_by_code():
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=list(tools) or None, add_generation_prompt=generation, tokenize=False, **settings
            )
            return text
        # not at the top: this module is read by programs that never render
        from transformers.utils.chat_template_utils import render_jinja_template

        source = self.source(tools)
        if thinking is not None:
            settings["thinking"] = thinking
        if "strftime_now" in source:
            settings["pinned_dates"] = _pinned_dates(source, date)
            source = _PINNED_DATE + source
        texts, _ = render_jinja_template(
            conversations=[messages],
            tools=list(tools) or None,
            chat_template=source,
            add_generation_prompt=generation,
            **{**self._tokenizer.special_tokens_map, **settings},
        )
        rendered: str = texts[0]
        return rendered

    def _rendered_by_code(self) -> bool:
        tokenizer = self._tokenizer
        return "chat_template_type" in tokenizer.init_kwargs or tokenizer.chat_template is None


def plain_message(message: Message) -> Plain:
    """One message in the OpenAI layout, arguments as objects, reasoning as `reasoning_content`."""
    out: Plain = {"role": message.role, "content": _content(message)}
    if message.reasoning:
        out["reasoning_content"] = message.reasoning
        out["reasoning"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out


def _content(message: Message) -> str | list[Plain]:
    if not any(isinstance(part, ImagePart) for part in message.content):
        return message.text
    parts: list[Plain] = []
    for part in message.content:
        if isinstance(part, ImagePart):
            parts.append({"type": "image"})
        else:
            alone = Message(message.role, (part,))
            parts.append({"type": "text", "text": part.text if isinstance(part, TextPart) else alone.text})
    return parts


def pictures_in(message: Plain) -> int:
    """How many pictures a plain message holds."""
    content = message.get("content")
    return sum(part.get("type") == "image" for part in content) if isinstance(content, list) else 0


def _plain_call(call: ToolCall) -> Plain:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _pinned_dates(source: str, date: str | None) -> dict[str, str]:
    """What strftime_now gives for each format the template names; "" stands for any other."""
    day = Date.fromisoformat(date[:10]) if date else Date.today()
    formats = {found.group(2) for found in _DATE_FORMAT.finditer(source)}
    return {"": day.isoformat(), **{form: day.strftime(form) for form in formats}}


def _as_is(messages: Sequence[Plain]) -> list[Plain] | None:
    return list(messages)


def _arguments_as_text(messages: Sequence[Plain]) -> list[Plain] | None:
    """For templates that join the arguments to a string."""
    import json

    if not any(message.get("tool_calls") for message in messages):
        return None
    out = []
    for message in messages:
        calls = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in message.get("tool_calls", ())
        ]
        out.append({**message, "tool_calls": calls} if calls else message)
    return out


def _words_before_a_call_as_reasoning(messages: Sequence[Plain]) -> list[Plain] | None:
    """For templates (gpt-oss) that take either words or reasoning beside a call, not both."""
    changed, out = False, []
    for message in messages:
        words, reasoning = message.get("content"), message.get("reasoning_content")
        if message.get("tool_calls") and reasoning and isinstance(words, str) and words.strip():
            both = f"{reasoning}\n\n{words}"
            message = {**message, "content": "", "reasoning_content": both, "reasoning": both}
            changed = True
        out.append(message)
    return out if changed else None


_SPELLINGS: tuple[Callable[[Sequence[Plain]], list[Plain] | None], ...] = (
    _as_is,
    _arguments_as_text,
    _words_before_a_call_as_reasoning,
)
