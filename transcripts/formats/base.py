"""What a format's module gives, and what it is given: JSON objects by line, and a place to name what it can't use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model import Conversation, Skipped

Object = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """One JSON object of a file.

    line   its 1-based line; in a file that is one JSON array, its 1-based place there
    """

    line: int
    value: Object


@dataclass(frozen=True)
class Head:
    """The first records of a file, for detection.

    array   the file is one JSON array, not lines
    """

    values: tuple[Object, ...]
    array: bool = False

    @property
    def first(self) -> Object:
        """The first record; an empty object if there is none."""
        return self.values[0] if self.values else {}


@dataclass
class Source:
    """A file being read: its records, once, in order, and the list of what had to be skipped."""

    path: Path
    records: Iterable[Record]
    array: bool = False
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file's name without what says its format."""
        return self.path.name.split(".")[0] or self.path.name

    def skip(self, line: int, why: str) -> None:
        """Count `line` as one that could not be used."""
        self.skipped.append(Skipped(line, why))


@dataclass(frozen=True)
class Parsed:
    """What a format's module made of a source. `missing`: what the format leaves out, in short phrases."""

    conversations: tuple[Conversation, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """One format. `title` is for people, `name` for `--format`.

    recognise   whether a file that begins so is of this format; never raises
    parse       reads a whole source; never raises for any JSON, of whatever shape
    """

    name: str
    title: str
    recognise: Callable[[Head], bool]
    parse: Callable[[Source], Parsed]


SYSTEM_PROMPT = "system prompt"
TOOL_SCHEMAS = "tool schemas"
HIDDEN_REASONING = "reasoning (encrypted)"
"""Phrases of `missing`, the same in every format."""
