"""The message lines of a saved chat: those of a Session Trace (STS), and the ids behind each sampled message.

`generated` stands on the line beside the message: {scaffoldText, scaffoldIds, ids, answerStart}. Other readers leave it
alone; here it lets a chat that goes on be fed the ids that were sampled.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from ..engine.messages import Generated, ToolCall
from .formats.fields import time_of
from .formats.sts import entry_of
from .model import Entry
from .sts_lines import message_line as plain_line

_FIELD = "generated"


def message_line(entry: Entry) -> dict[str, Any]:
    """An entry as its line."""
    message = entry.message
    if message.tool_calls:
        message = replace(message, tool_calls=tuple(_with_text(call) for call in message.tool_calls))
    line = plain_line(replace(entry, message=message))
    if message.generated is not None:
        line[_FIELD] = _generated_json(message.generated)
    return line


def read_entry(line: dict[str, Any], number: int) -> Entry:
    """The entry of a message line, `number` being its place in the file. Raises ValueError that says what is wrong."""
    if not isinstance(line.get("message"), dict):
        raise ValueError("a message line without a message")
    entry = entry_of(line, number)
    if entry is None:
        raise ValueError(f"no role is called {str(line['message'].get('role'))[:40]!r}")
    extra = dict(entry.extra)
    generated = _generated(extra.pop(_FIELD, None)) if entry.message.role == "assistant" else None
    return replace(entry, message=replace(entry.message, generated=generated), extra=extra)


def now() -> str:
    """This moment as an entry's time."""
    return time_of(milliseconds_now()) or ""


def milliseconds_now() -> int:
    """This moment as milliseconds since 1970, as lines have it."""
    return time.time_ns() // 1_000_000


def _with_text(call: ToolCall) -> ToolCall:
    """The format wants arguments as a string of JSON."""
    return call if call.raw is not None else replace(call, raw=json.dumps(call.arguments, ensure_ascii=False))


def _generated_json(generated: Generated) -> dict[str, Any]:
    return {
        "scaffoldText": generated.scaffold_text,
        "scaffoldIds": list(generated.scaffold_ids),
        "ids": list(generated.ids),
        "answerStart": generated.answer_start,
    }


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
