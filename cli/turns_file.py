"""`--turns FILE`: one user message per line, or JSONL."""

from __future__ import annotations

import json
from typing import Any

from ..engine.messages import ImagePart, Message, Part, TextPart
from ..errors import DataError, UsageError
from ..transcripts.formats.content import image_source
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
        return [Message("user", _content(line, f"{name}, line {number}")) for number, line in lines]
    return [Message("user", (TextPart(line),)) for _, line in lines]


def _is_json_string(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except (ValueError, RecursionError):
        return False


def _content(line: str, where: str) -> tuple[Part, ...]:
    try:
        value = whole_characters(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}", _SHAPES) from error
    if isinstance(value, dict):
        if value.get("role", "user") != "user":
            raise DataError(f"{where} has the role {value['role']!r}", "--turns takes user messages only")
        value = value.get("content")
    elif not isinstance(value, str):
        raise DataError(f"{where} is no user message", _SHAPES)
    parts = _parts(value if isinstance(value, list) else [value], where)
    words = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    if not words.strip():
        raise DataError(f"{where} is an empty message", _SHAPES)
    return (TextPart(words),) if all(isinstance(part, TextPart) for part in parts) else parts


def _parts(content: list[Any], where: str) -> tuple[Part, ...]:
    """Text, and pictures by where they are: those are read later. Raises DataError for anything else."""
    parts: list[Part] = []
    for item in content:
        text = item.get("text") if isinstance(item, dict) else item
        source = image_source(item) if isinstance(item, dict) else None
        if isinstance(text, str):
            parts.append(TextPart(text))
        elif source is not None:
            parts.append(ImagePart(source))
        else:
            raise DataError(f"{where} is no user message", _SHAPES)
    return tuple(parts)
