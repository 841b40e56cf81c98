"""The lines of a Session Trace (STS), the format that chats are saved in: one JSON object each, in both directions.

A header line `{type: "session", harness, id, name?}`, then `{type: "message", message: {role, content, …}}`. Fields of
ours that other readers ignore: `id` and `parentId` of a message (a tree), `generated`, `interrupted`, `usage`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..engine.messages import FilePart, Generated, ImagePart, Message, Part, TextPart, ToolCall
from .model import Entry, Usage

HARNESS = "mlxchat"
_ROLES = ("system", "user", "assistant", "tool")
_USAGE = {
    "promptTokens": "prompt_tokens",
    "cachedTokens": "cached_tokens",
    "completionTokens": "completion_tokens",
    "reasoningTokens": "reasoning_tokens",
}


def is_header(value: Any) -> bool:
    """Whether a file whose first line is `value` is a Session Trace."""
    return isinstance(value, dict) and value.get("type") == "session" and isinstance(value.get("harness"), str)


def message_line(entry: Entry) -> dict[str, Any]:
    """An entry as its line. `time` is milliseconds since 1970, as decimal digits."""
    message = entry.message
    inner: dict[str, Any] = {"role": message.role, "content": _content_json(message.content)}
    if message.reasoning is not None:
        inner["reasoningContent"] = message.reasoning
    if message.tool_calls:
        inner["toolCalls"] = [_call_json(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        inner["toolCallId"] = message.tool_call_id
    if message.name is not None:
        inner["name"] = message.name
    if entry.time is not None:
        inner["timestamp"] = int(entry.time)
    if entry.model is not None:
        inner["model"] = entry.model
    line: dict[str, Any] = {**entry.extra, "type": "message"}
    if entry.id is not None:
        line |= {"id": entry.id, "parentId": entry.parent_id}
    line["message"] = inner
    if message.interrupted:
        line["interrupted"] = True
    if entry.usage is not None:
        line["usage"] = {name: getattr(entry.usage, field) for name, field in _USAGE.items()}
    if message.generated is not None:
        line["generated"] = _generated_json(message.generated)
    return line


def read_entry(line: Mapping[str, Any], number: int) -> Entry:
    """The entry of a message line, `number` being its place in the file. Raises ValueError that says what is wrong."""
    inner = line.get("message")
    if not isinstance(inner, dict):
        raise ValueError("a message line without a message")
    role = inner.get("role")
    if role not in _ROLES:
        raise ValueError(f"no role is called {role!r}")
    message = Message(
        role,
        _parts(inner.get("content")),
        reasoning=_text(inner, "reasoningContent"),
        tool_calls=tuple(_call(raw) for raw in _list(inner, "toolCalls")),
        tool_call_id=_text(inner, "toolCallId"),
        name=_text(inner, "name"),
        generated=_generated(line.get("generated")) if role == "assistant" else None,
        interrupted=line.get("interrupted") is True,
    )
    time = inner.get("timestamp")
    known = ("type", "id", "parentId", "message", "interrupted", "usage", "generated")
    return Entry(
        message,
        number,
        id=_text(line, "id"),
        parent_id=_text(line, "parentId"),
        time=str(int(time)) if isinstance(time, int | float) and not isinstance(time, bool) else None,
        model=_text(inner, "model"),
        usage=_usage(line.get("usage")),
        extra={key: value for key, value in line.items() if key not in known},
    )


# -- to JSON ---------------------------------------------------------------------------------------------------


def _content_json(parts: tuple[Part, ...]) -> str | list[dict[str, str]]:
    """A string if it is plain text; a list where the parts themselves matter."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [_part_json(part) for part in parts]


def _part_json(part: Part) -> dict[str, str]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart):
        return {"type": "file", "name": part.name, "text": part.text}
    return {"type": "image", "source": part.source}


def _call_json(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    out: dict[str, Any] = {"id": call.id, "function": {"name": call.name, "arguments": arguments}}
    if call.raw is not None:
        out["raw"] = call.raw
    return out


def _generated_json(generated: Generated) -> dict[str, Any]:
    return {
        "scaffoldText": generated.scaffold_text,
        "scaffoldIds": list(generated.scaffold_ids),
        "ids": list(generated.ids),
        "answerStart": generated.answer_start,
    }


# -- from JSON -------------------------------------------------------------------------------------------------


def _parts(content: Any) -> tuple[Part, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        raise ValueError("content is neither text nor a list of parts")
    return tuple(_part(raw) for raw in content)


def _part(raw: Any) -> Part:
    fields = raw if isinstance(raw, dict) else {}
    match fields:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "file", "name": str(name), "text": str(text)}:
            return FilePart(name, text)
        case {"type": "image", "source": str(source)}:
            return ImagePart(source)
    raise ValueError(f"no part of a message is like {str(raw)[:60]}")


def _call(raw: Any) -> ToolCall:
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError("a tool call without a function's name")
    written, arguments = _text(raw, "raw"), function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except ValueError:
            value = None
        if not isinstance(value, dict):  # what the model wrote is kept even where it is no object
            value, written = {}, written or arguments
        arguments = value
    if not isinstance(arguments, dict):
        raise ValueError("a tool call's arguments are no object")
    return ToolCall(str(raw.get("id") or ""), function["name"], arguments, written)


def _generated(raw: Any) -> Generated | None:
    """The sampled ids, None unless every field is as it should be: they are only ever a help."""
    match raw:
        case {
            "scaffoldText": str(text),
            "scaffoldIds": list(scaffold),
            "ids": list(ids),
            "answerStart": int(start),
        } if _are_ids(scaffold) and _are_ids(ids) and 0 <= start <= len(ids):
            return Generated(text, tuple(scaffold), tuple(ids), start)
    return None


def _are_ids(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 31 for value in values)


def _usage(raw: Any) -> Usage | None:
    if not isinstance(raw, dict):
        return None
    counts = {field: raw.get(name) for name, field in _USAGE.items()}
    return Usage(**{field: count if type(count) is int and count >= 0 else None for field, count in counts.items()})


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _list(raw: Mapping[str, Any], name: str) -> list[Any]:
    value = raw.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value or []
