"""A conversation as rows of OpenAI chat messages: one per branch, each a whole conversation that any reader takes.

What chat completions have no place for stands in the field `mlxchat`, so that reading the rows gives all of it back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from ..engine.messages import FilePart, Part, TextPart, ToolCall
from .formats.branches import KEY
from .formats.content import words_or_parts, written_arguments
from .model import Conversation, Entry
from .trees import Paths

Object = dict[str, Any]


def openai_rows(conversation: Conversation, bare: bool = False) -> Iterator[Object]:
    """The rows. `bare`: without the field `mlxchat`."""
    tools = next((request.tools for request in conversation.requests if request.tools), ())
    paths = Paths(conversation.entries)
    for leaf in paths.leaves():
        row: Object = {"messages": [_message(*place, bare) for place in paths.places(leaf)]}
        if tools:
            row["tools"] = list(tools)
        yield row if bare else {**row, KEY: _about(conversation)}


def _about(conversation: Conversation) -> Object:
    about: Object = {"conversation": conversation.id}
    if conversation.title is not None:
        about["title"] = conversation.title
    if conversation.kind != "main":
        about["kind"] = conversation.kind
    if conversation.parent is not None:
        about["parent"] = conversation.parent
    if conversation.extra:
        about["extra"] = conversation.extra
    return about


def _message(at: int, entry: Entry, bare: bool) -> Object:
    message = entry.message
    role = "developer" if message.role == "system" and _said_role(entry) == "developer" else message.role
    content = words_or_parts(message.content, _part)
    out: Object = {"role": role, "content": None if message.tool_calls and not content else content}
    if message.reasoning is not None:
        out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [_call(call, bare) for call in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out if bare else {**out, KEY: _beside(at, entry)}


def _said_role(entry: Entry) -> Any:
    inner = entry.extra.get("message")
    return entry.extra.get("role", inner.get("role") if isinstance(inner, dict) else None)


def _beside(at: int, entry: Entry) -> Object:
    """What a chat message has no field for. `at`: the entry's 0-based place in its conversation."""
    usage = entry.usage
    beside: Object = {
        "at": at,
        "line": entry.line,
        "id": entry.id,
        "parentId": entry.parent_id,
        "time": entry.time,
        "model": entry.model,
        "usage": None
        if usage is None
        else {
            "prompt": usage.prompt_tokens,
            "cached": usage.cached_tokens,
            "completion": usage.completion_tokens,
            "reasoning": usage.reasoning_tokens,
        },
        "hiddenReasoning": entry.hidden_reasoning or None,
        "interrupted": entry.message.interrupted or None,
        "extra": entry.extra or None,
    }
    return {name: value for name, value in beside.items() if value is not None}


def _part(part: Part) -> Object:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart):
        data = base64.b64encode(part.text.encode("utf-8", "replace")).decode()
        return {"type": "file", "file": {"filename": part.name, "file_data": f"data:text/plain;base64,{data}"}}
    return {"type": "image_url", "image_url": {"url": part.source}}


def _call(call: ToolCall, bare: bool) -> Object:
    written = written_arguments(call)
    arguments = json.dumps(call.arguments, ensure_ascii=False) if written is None else written
    out: Object = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    if bare or written is not None:
        return out
    return {**out, KEY: {"arguments": "object"} if call.raw is None else {"raw": call.raw}}
