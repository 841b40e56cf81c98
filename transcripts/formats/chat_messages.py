"""One message in the shape of chat completions, with its common dialects, to messages of ours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from ...engine.messages import Message, Role, TextPart, ToolCall
from ..model import Entry
from .content import Content, content_of, reasoning_of, result_words, split_think, tool_call
from .fields import Object, array, label, obj, objects, text, time_of, usage_of, without

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
_USED = (
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning"),
    *("thinking", "thinking_blocks", "reasoning_details", "timestamp", "model", "usage", "id", "mlxchat"),
)


@dataclass(frozen=True)
class ChatMessage:
    """A message, and what its line says besides."""

    message: Message
    hidden: bool = False
    extra: Object = field(default_factory=dict)


def is_chat_message(value: Any) -> bool:
    """Whether `value` looks like a chat message: a role, and content or calls."""
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and ("content" in value or "tool_calls" in value)
    )


def chat_messages(raw: Object, think: bool = True) -> list[ChatMessage]:
    """The messages in one chat message: several if tool results stand among its parts. Empty: the role is unknown.

    think   split a leading <think> block off an answer that has no other reasoning
    """
    role = ROLES.get(str(raw.get("role")))
    if role is None:
        return []
    content = content_of(raw.get("content"))
    extra = without(raw, *_USED)
    if raw.get("role") not in (role, "human", "ai", "gpt", "model"):
        extra["role"] = raw["role"]
    if content.other:
        extra["parts"] = content.other
    results = [_result(part) for part in content.results]
    if results and not content.parts:
        return results
    message = Message(role, tuple(content.parts), name=label(raw.get("name")))
    if role == "tool":
        message = _tool_message(message, raw)
    if role != "assistant":
        return [*results, ChatMessage(message, extra=extra)]
    return [_answer(message, raw, content, extra, think)]


class ChatReader:
    """`chat_messages` with a memory: request logs repeat the whole history with each request, here read only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[ChatMessage]] = {}

    def messages(self, raw: Object) -> list[ChatMessage]:
        """The messages in one chat message; the very same objects for an equal one. Ours keep <think> as it stands."""
        key = hashlib.blake2b(json.dumps(raw).encode(), digest_size=16).digest()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = chat_messages(raw, think="mlxchat" not in raw)
        return found


def _tool_message(message: Message, raw: Object) -> Message:
    ids = [raw.get("tool_call_id"), *array(raw.get("tool_call_ids"))]
    content = message.content or result_words(raw.get("content"))
    name = message.name or text(raw.get("function"))
    return replace(message, content=content, tool_call_id=next((i for x in ids if (i := label(x))), None), name=name)


def _answer(message: Message, raw: Object, content: Content, extra: Object, think: bool) -> ChatMessage:
    reasoning, hidden = reasoning_of(raw)
    reasoning = reasoning or "\n".join(content.reasoning) or None
    if think and reasoning is None and message.content and isinstance(message.content[0], TextPart):
        reasoning, rest = split_think(message.content[0].text)
        if reasoning is not None:
            message = replace(message, content=(*((TextPart(rest),) if rest else ()), *message.content[1:]))
    calls = (*_calls(raw), *content.calls)
    return ChatMessage(
        replace(message, reasoning=reasoning, tool_calls=calls),
        hidden=(hidden or content.hidden) and reasoning is None,
        extra=extra,
    )


def _calls(raw: Object) -> tuple[ToolCall, ...]:
    calls = objects(raw.get("tool_calls"))
    legacy = obj(raw.get("function_call"))
    return tuple(call_of(call) for call in ([*calls, {"function": legacy}] if legacy else calls))


def call_of(call: Object) -> ToolCall:
    """A tool call in chat form, flat or nested."""
    inner = call.get("function")
    function = obj(inner) or call
    name = inner if isinstance(inner, str) else function.get("name")
    made = tool_call(call.get("id"), name, function.get("arguments"))
    about = obj(call.get("mlxchat"))
    if about.get("arguments") == "object":
        return replace(made, raw=None)
    written = (about.get("raw"), call.get("raw"))
    return replace(made, raw=next((raw for raw in written if isinstance(raw, str)), made.raw))


def _result(part: Object) -> ChatMessage:
    extra = without(part, "type", "tool_use_id", "content")
    if extra.get("is_error") is False:
        del extra["is_error"]
    return ChatMessage(
        Message("tool", result_words(part.get("content")), tool_call_id=label(part.get("tool_use_id"))), extra=extra
    )


def entry_of(found: ChatMessage, raw: Object, line: int) -> Entry:
    """The message as an entry, with what its line says of time, model and usage."""
    return Entry(
        found.message,
        line,
        id=label(raw.get("id")),
        time=time_of(raw.get("timestamp")),
        model=text(raw.get("model")),
        usage=usage_of(raw.get("usage")),
        hidden_reasoning=found.hidden,
        extra=found.extra,
    )
