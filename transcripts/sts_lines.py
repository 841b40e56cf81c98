"""A conversation as the lines of a Session Trace (STS): a header, then one message each, ids and parents with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..engine.messages import FilePart, Part, TextPart, ToolCall
from .formats.chat_messages import ROLES
from .formats.content import words_or_parts, written_arguments
from .formats.fields import obj, time_of
from .model import Conversation, Entry, Usage, seconds

Object = dict[str, Any]
HARNESS = "mlxchat"
LINE_FIELDS = ("type", "id", "parentId", "message", "extra", "hiddenReasoning", "usage", "interrupted")
"""What a message line has of its own; anything else on it is kept as it is."""

MESSAGE_FIELDS = ("role", "content", "reasoningContent", "toolCalls", "toolCallId", "name", "timestamp", "model")
"""What the message on a line has of its own."""


def sts_lines(conversation: Conversation) -> Iterator[Object]:
    """The lines, as JSON objects."""
    yield header(conversation)
    for entry in conversation.entries:
        yield message_line(entry)


def header(conversation: Conversation) -> Object:
    """The first line."""
    line: Object = {"type": "session", "harness": HARNESS, "id": conversation.id}
    if conversation.title:
        line["name"] = conversation.title
    line |= {name: value for name, value in conversation.extra.items() if name not in ("type", "id", "name")}
    tools = next((request.tools for request in conversation.requests if request.tools), ())
    if tools:
        line["tools"] = list(tools)
    if conversation.kind != "main":
        line["kind"] = conversation.kind
    if conversation.parent:
        line["parent"] = conversation.parent
    return line


def message_line(entry: Entry) -> Object:
    """One entry's line."""
    kept = {name: value for name, value in entry.extra.items() if name not in LINE_FIELDS}
    line: Object = {**kept, "type": "message"}
    if entry.id is not None:
        line |= {"id": entry.id, "parentId": entry.parent_id}
    inner = _fitting(entry)
    line["message"] = {**_message(entry), **inner}
    if entry.message.interrupted:
        line["interrupted"] = True
    if entry.usage is not None:
        line["usage"] = usage_json(entry.usage)
    if entry.hidden_reasoning:
        line["hiddenReasoning"] = True
    clashing = {
        name: value for name, value in entry.extra.items() if name in LINE_FIELDS and not (name == "message" and inner)
    }
    return {**line, "extra": clashing} if clashing else line


def _fitting(entry: Entry) -> Object:
    """The kept fields of the message itself, if they change nothing that the entry says; else none."""
    inner = obj(entry.extra.get("message"))
    clash = any(name in MESSAGE_FIELDS and name not in ("role", "timestamp") for name in inner)
    role = ROLES.get(str(inner["role"])) if "role" in inner else entry.message.role
    time = time_of(inner["timestamp"]) if "timestamp" in inner else entry.time
    return {} if clash or role != entry.message.role or time != entry.time else inner


def _message(entry: Entry) -> Object:
    message = entry.message
    out: Object = {"role": message.role, "content": words_or_parts(message.content, _part)}
    if message.reasoning is not None:
        out["reasoningContent"] = message.reasoning
    if message.tool_calls:
        out["toolCalls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        out["toolCallId"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    if entry.time is not None:
        out["timestamp"] = stamp(entry.time)
    if entry.model is not None:
        out["model"] = entry.model
    return out


def stamp(time: str) -> str | int:
    """A time as milliseconds since 1970 where that says the same, else as it is."""
    at = seconds(time)
    milliseconds = None if at is None else round(at * 1000)
    return milliseconds if milliseconds is not None and time_of(milliseconds) == time else time


def usage_json(usage: Usage) -> Object:
    """Token counts; null where they weren't recorded."""
    return {
        "promptTokens": usage.prompt_tokens,
        "cachedTokens": usage.cached_tokens,
        "completionTokens": usage.completion_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def _part(part: Part) -> Object:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart):
        return {"type": "file", "name": part.name, "text": part.text}
    return {"type": "image", "source": part.source}


def _call(call: ToolCall) -> Object:
    written = written_arguments(call)
    function = {"name": call.name, "arguments": call.arguments if written is None else written}
    out: Object = {"id": call.id, "function": function}
    return {**out, "raw": call.raw} if call.raw is not None and written is None else out
