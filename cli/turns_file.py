"""`--turns FILE`: one user message per line, or JSONL."""

from __future__ import annotations

import json
from typing import Any

from ..engine.messages import Message, user
from ..errors import DataError, UsageError
from ..transcripts.json_lines import whole_characters

_SHAPES = 'a line is {"role": "user", "content": "…"}, {"content": "…"} or a JSON string'


def parse_turns(text: str, name: str) -> list[Message]:
    """The user messages in `text`; blank lines are skipped. Raises DataError, and UsageError if there is none.

    It is JSONL if its name says so, its first line opens an object, or every line is a JSON string.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{name} holds no message", "write one user message per line, or JSONL")
    if name.endswith(".jsonl") or lines[0][1].startswith("{") or all(_is_json_string(line) for _, line in lines):
        return [user(_content(line, f"{name}, line {number}")) for number, line in lines]
    return [user(line) for _, line in lines]


def _is_json_string(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except (ValueError, RecursionError):
        return False


def _content(line: str, where: str) -> str:
    try:
        value = whole_characters(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}", _SHAPES) from error
    if isinstance(value, dict):
        if value.get("role", "user") != "user":
            raise DataError(f"{where} has the role {value['role']!r}", "--turns takes user messages only")
        value = _text(value.get("content"))
    if not isinstance(value, str):
        raise DataError(f"{where} is no user message", _SHAPES)
    if not value.strip():
        raise DataError(f"{where} is an empty message", _SHAPES)
    return value


def _text(content: Any) -> Any:
    """The words of a content that is a list of text parts; anything else as it is."""
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "\n".join(part["text"] for part in content)
    return content
