"""The lines of a Session Trace (STS), the format that chats are saved in: one JSON object each, in both directions.

A header line `{type: "session", harness, id, name?}`, then `{type: "message", message: {role, content, …}}`. Fields of
ours that other readers ignore: a line's `id`, `parentId` (a tree) and `generated`; a message's `interrupted`, `usage`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..engine.messages import FilePart, Generated, ImagePart, Message, Part, TextPart, ToolCall
from .model import Entry, Usage

HARNESS = "mlxchat"
_ROLES = ("system", "user", "assistant", "tool")
_USAGE = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
_LINE = ("type", "id", "parentId", "message", "generated")


def is_header(value: Any) -> bool:
    """Whether a file whose first line is `value` is a Session Trace."""
    return isinstance(value, dict) and value.get("type") == "session" and isinstance(value.get("harness"), str)


def message_line(entry: Entry) -> dict[str, Any]:
    """An entry as its line; its time as milliseconds since 1970."""
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
    if entry.time is not None and (time := milliseconds(entry.time)) is not None:
        inner["timestamp"] = time
    if entry.model is not None:
        inner["model"] = entry.model
    if message.interrupted:
        inner["interrupted"] = True
    if entry.usage is not None:
        inner["usage"] = {name: getattr(entry.usage, name) for name in _USAGE}
    line: dict[str, Any] = {**entry.extra, "type": "message"}
    if entry.id is not None:
        line |= {"id": entry.id, "parentId": entry.parent_id}
    line["message"] = inner
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
        interrupted=inner.get("interrupted") is True,
    )
    return Entry(
        message,
        number,
        id=_text(line, "id"),
        parent_id=_text(line, "parentId"),
        time=_time(inner.get("timestamp")),
        model=_text(inner, "model"),
        usage=_usage(inner.get("usage")),
        extra={key: value for key, value in line.items() if key not in _LINE},
    )


def now() -> str:
    """This moment as an entry's time: ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def milliseconds(time: str) -> int | None:
    """An entry's time as milliseconds since 1970; None if it is no ISO 8601 time."""
    try:
        return round(datetime.fromisoformat(time).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


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
    ours = _spelled(call.arguments)
    spelled = call.raw is not None and call.raw != ours and _object(call.raw) == call.arguments
    arguments = call.raw if spelled else ours
    out: dict[str, Any] = {"id": call.id, "function": {"name": call.name, "arguments": arguments}}
    if call.raw is not None and not spelled:
        out["raw"] = call.raw
    return out


def _spelled(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


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
        value = _object(arguments)
        if value is None or arguments != _spelled(value):  # what the model wrote is kept, even where it is no object
            written = written or arguments
        arguments = value or {}
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
    counts = {name: raw.get(name) for name in _USAGE}
    return Usage(**{name: count if type(count) is int and count >= 0 else None for name, count in counts.items()})


def _time(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


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
