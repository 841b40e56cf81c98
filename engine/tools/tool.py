"""One tool: what the model is told of it, and what carries a call out. Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Status = Literal["ran", "failed", "denied", "timed_out", "interrupted", "not_run"]
Stopped = Callable[[], bool]
"""Asked a few times a second while a tool runs; True ends it."""


@dataclass(frozen=True)
class ToolResult:
    """What came of one call. `text` is what the model is told: short enough, and without control characters."""

    status: Status
    text: str


class Runner(Protocol):
    """Whatever carries out the calls of one tool."""

    def run(self, arguments: dict[str, Any], stopped: Stopped) -> ToolResult:
        """Do it; blocks until it is over. Errors are results too."""

    def describe(self, arguments: dict[str, Any]) -> str:
        """What would be done, for the person who is asked: the command line, or the server's name."""


@dataclass(frozen=True)
class Tool:
    """`function` is the OpenAI-style object the model sees (name, description, parameters).

    origin     the file or the server it comes from, for people
    identity   changes with anything about it: its words, its parameters, where it comes from, what it runs
    runner     None: it is only described, and whoever started the program carries its calls out
    """

    name: str
    function: dict[str, Any]
    origin: str
    identity: str
    runner: Runner | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as templates take it."""
        return {"type": "function", "function": self.function}

    @property
    def summary(self) -> str:
        """The first line of its description."""
        words = str(self.function.get("description") or "").strip()
        return words.splitlines()[0] if words else ""


def identity_of(*parts: Any) -> str:
    """A hash of JSON values: equal only if all of them are."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
