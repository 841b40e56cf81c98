"""JSON files as records: a line each, the elements of one array, or one object; what isn't JSON is skipped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..errors import DataError
from .formats.base import Record
from .model import Skipped

LONGEST_LINE = 256 << 20
"""Bytes of one line; a longer one is skipped."""

LARGEST_DOCUMENT = 1 << 30
"""Bytes of a file that is one JSON value over many lines, which can't be streamed."""


MOST_NESTED = 200
"""Arrays and objects within each other; deeper values would exhaust the stack of whoever copies or prints them."""

_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class NotJson(Exception):
    """Text that is no JSON. `line`: 1-based, within the text."""

    def __init__(self, why: str, line: int = 1) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


def load(raw: bytes) -> Any:
    """The value that `raw` is. Half characters become U+FFFD. Raises NotJson."""
    if _too_deep(raw):
        raise NotJson(f"it is nested more than {MOST_NESTED} deep")
    try:
        text = raw.decode("utf-8-sig")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise NotJson("it is not UTF-8", raw.count(b"\n", 0, error.start) + 1) from None
    except json.JSONDecodeError as error:
        raise NotJson(f"it is not JSON ({error.msg})", error.lineno) from None
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except ValueError as error:
        raise NotJson(f"it is not JSON ({error})") from None
    return whole_characters(value) if "\\ud" in text.lower() else value


def _too_deep(raw: bytes) -> bool:
    """Whether the brackets in `raw` go too deep. Those within strings count too, so code may look deeper than it is."""
    brackets = raw.translate(None, _NOT_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") <= MOST_NESTED:
        return False
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > MOST_NESTED:
            return _depth(raw) > MOST_NESTED
    return False


def _depth(raw: bytes) -> int:
    """How deep the brackets outside of strings go."""
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(raw):
        if found[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def whole_characters(value: Any) -> Any:
    """`value` with U+FFFD for lone surrogates, which no tokenizer and no file takes."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole_characters(inner) for inner in value]
    if isinstance(value, dict):
        return {whole_characters(name): whole_characters(inner) for name, inner in value.items()}
    return value


@dataclass
class JsonRecords:
    """The records of a stream, once. `array`: it is one JSON array, and a record's line is its place there."""

    stream: BinaryIO
    name: str
    skipped: list[Skipped] = field(default_factory=list)
    array: bool = False
    _rest: Iterator[tuple[int, bytes]] = field(init=False)

    def __post_init__(self) -> None:
        self._rest = iter(())

    def __iter__(self) -> Iterator[Record]:
        lines = self._lines()
        number, first = next(lines, (0, b""))
        if not first:
            return
        try:
            value = load(first)
        except NotJson:
            yield from self._document_or_lines(number, first, lines)
            return
        following = next(lines, None)
        if isinstance(value, list) and following is None:
            yield from self._elements(value)
            return
        yield from self._record(number, value)
        if following is not None:
            yield from self._by_line(following, lines)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """(number, line) of those that aren't blank or too long."""
        number = 0
        while raw := self.stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(raw) > LONGEST_LINE:
                self.skipped.append(Skipped(number, f"longer than {LONGEST_LINE >> 20} MB"))
                while raw and not raw.endswith(b"\n"):
                    raw = self.stream.readline(LONGEST_LINE)
            elif raw.strip():
                yield number, raw

    def _document_or_lines(self, number: int, first: bytes, lines: Iterator[tuple[int, bytes]]) -> Iterator[Record]:
        """A file whose first line is no JSON: one value over many lines, or lines of which the first is bad."""
        if first.lstrip(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
            yield from self._by_line((number, first), lines)
            return
        kept = [(number, first)]
        size = len(first)
        for line in lines:
            kept.append(line)
            size += len(line[1])
            if size > LARGEST_DOCUMENT:
                raise DataError(
                    f"{self.name} is one JSON value of more than {LARGEST_DOCUMENT >> 30} GB", "write it as JSON lines"
                )
        try:
            value = load(b"".join(line for _, line in kept))
        except NotJson as error:
            found = list(self._by_line(kept[0], iter(kept[1:])))
            if not found:  # one broken document, not lines: name the place where it breaks
                self.skipped[:] = [Skipped(kept[min(error.line, len(kept)) - 1][0], error.why)]
            yield from found
            return
        if isinstance(value, list):
            yield from self._elements(value)
        else:
            yield from self._record(number, value)

    def _by_line(self, first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]]) -> Iterator[Record]:
        line: tuple[int, bytes] | None = first
        while line is not None:
            number, raw = line
            line = next(rest, None)
            try:
                value = load(raw)
            except NotJson as error:
                cut = line is None and not raw.endswith(b"\n")
                self.skipped.append(Skipped(number, "it is cut off" if cut else error.why))
                continue
            yield from self._record(number, value)

    def _elements(self, values: list[Any]) -> Iterator[Record]:
        self.array = True
        for at, value in enumerate(values, 1):
            yield from self._record(at, value)

    def _record(self, number: int, value: Any) -> Iterator[Record]:
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = {"messages": value}  # a conversation as a bare list
        if isinstance(value, dict):
            yield Record(number, value)
        else:
            self.skipped.append(Skipped(number, "it is no JSON object"))
