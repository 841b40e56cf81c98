"""Calls and their results as lines for a terminal, in which nothing is invisible."""

from __future__ import annotations

import json
from typing import Any

from ..engine.tools.tool import ToolResult

_SHORT, _LONG = 60, 120
# Printable, says Unicode, but nothing is seen of them: fillers, joiners, blanks, variation selectors.
_FEW = map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))
_RANGES = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_BLANK = frozenset((*_FEW, *(chr(number) for numbers in _RANGES for number in numbers)))


def argument_lines(arguments: dict[str, Any]) -> list[str]:
    """The arguments, all of them, as JSON in which nothing is invisible."""
    return [visible(line) for line in json.dumps(arguments, ensure_ascii=False, indent=2).split("\n")]


def visible(text: str) -> str:
    """`text` with an escape in place of every character that shows nothing, or changes how others are shown.

    An emoji stays whole: what chooses its look, or joins its parts, changes nothing else.
    """
    if text.isascii():
        return _escaped(text)
    from .emoji import JOINERS, SEQUENCE  # only where there may be one: a prompt need not wait for it

    shown, end = [], 0
    for emoji in SEQUENCE.finditer(text):
        shown += [_escaped(text[end : emoji.start()]), _escaped(emoji[0], JOINERS)]
        end = emoji.end()
    return "".join([*shown, _escaped(text[end:])])


def call_line(name: str, arguments: dict[str, Any]) -> str:
    """A call on one line; long arguments are cut, since this only tells."""
    words = visible(json.dumps(arguments, ensure_ascii=False))
    return f"{visible(name)} {words if len(words) <= _SHORT else f'{words[:_SHORT]}…'}"


def result_line(name: str, result: ToolResult) -> str:
    """What came of a call, on one line."""
    lines = [line for line in result.text.splitlines() if line.strip()]
    first = visible(lines[0].strip()) if lines else "no output"
    more = f" (and {len(lines) - 1:,} more lines)" if len(lines) > 1 else ""
    status = result.status.replace("_", " ")
    said = "" if result.status == "ran" or first.startswith(status) else f"{status}: "
    return f"{visible(name)} → {said}{first if len(first) <= _LONG else f'{first[:_LONG]}…'}{more}"


def _escaped(text: str, kept: frozenset[str] = frozenset()) -> str:
    return "".join(
        char if (char.isprintable() and char not in _BLANK) or char in kept else _escape(char) for char in text
    )


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
