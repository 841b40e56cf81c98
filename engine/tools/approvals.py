"""Who said that a call may run. Nothing here outlives the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from ..messages import ToolCall
from .tool import Tool

Answer = Literal["once", "always", "deny", "stop"]
"""stop: Ctrl-C at the question, which denies the call and ends the turn."""


@dataclass(frozen=True)
class Question:
    """May this call run?"""

    tool: Tool
    call: ToolCall


Ask = Callable[[Question], Answer]


class Approvals:
    """What was allowed beforehand, and what a person has allowed for good.

    allowed   globs of tool names that may run unasked
    ask       asks the person; None: there is nobody to ask, and what isn't allowed is denied
    """

    def __init__(self, allowed: Sequence[str] = (), ask: Ask | None = None) -> None:
        self._allowed = tuple(allowed)
        self._ask = ask
        self._always: dict[str, str] = {}

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return self._ask is not None

    def decide(self, tool: Tool, call: ToolCall) -> Answer:
        """Whether the call may run, after asking if need be.

        "always" is for the tool as it was shown: one that has changed in any way since is asked about again.
        """
        if self.allows(tool):
            return "once"
        if self._ask is None:
            return "deny"
        answer = self._ask(Question(tool, call))
        if answer == "always":
            self._always[tool.name] = tool.identity
        return answer

    def allows(self, tool: Tool) -> bool:
        """Whether its calls run unasked."""
        if self._always.get(tool.name) == tool.identity:
            return True
        return any(fnmatchcase(tool.name, glob) for glob in self._allowed)
