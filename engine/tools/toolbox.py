"""The tools of a run: those of files, those of servers, and which of them the model is told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

from ...errors import UsageError
from .tool import Tool


class Source(Protocol):
    """Where tools come from that may change while the program runs."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Those it has now."""

    def refresh(self) -> None:
        """Look again, before a turn."""


class Toolbox:
    """Every tool under a name of its own; the first to have a name keeps it.

    tell    gets one line for the user when a tool can't be had because its name is taken
    """

    def __init__(
        self, tools: Sequence[Tool] = (), source: Source | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._fixed = list(tools)
        self._source = source
        self._tell = tell
        self._disabled: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    @property
    def tools(self) -> list[Tool]:
        """All of them, in an order that lasts: prompts begin with them."""
        found: dict[str, Tool] = {}
        for tool in [*self._fixed, *(self._source.tools if self._source else ())]:
            first = found.setdefault(tool.name, tool)
            if first is not tool and (tool.name, tool.origin) not in self._told:
                self._told.add((tool.name, tool.origin))
                self._tell(f"{tool.origin} has a tool {tool.name} too; the one of {first.origin} is used")
        return list(found.values())

    @property
    def offered(self) -> list[Tool]:
        """Those that the model is told of."""
        return [tool for tool in self.tools if tool.name not in self._disabled]

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """The same as templates take them."""
        return tuple(tool.schema for tool in self.offered)

    def find(self, name: str) -> Tool | None:
        """The tool the model means; None if it was told of none of that name."""
        return next((tool for tool in self.offered if tool.name == name), None)

    def refresh(self) -> None:
        """Before a turn: tools of servers may have changed."""
        if self._source is not None:
            self._source.refresh()

    def enable(self, glob: str) -> list[str]:
        """Tell the model of these again; the names that this changed. Raises UsageError if no tool is meant."""
        changed = [name for name in self._matching(glob) if name in self._disabled]
        self._disabled.difference_update(changed)
        return changed

    def disable(self, glob: str) -> list[str]:
        """Tell the model no more of these; the names that this changed. Raises UsageError if no tool is meant."""
        changed = [name for name in self._matching(glob) if name not in self._disabled]
        self._disabled.update(changed)
        return changed

    def _matching(self, glob: str) -> list[str]:
        found = [tool.name for tool in self.tools if fnmatchcase(tool.name, glob)]
        if not found:
            raise UsageError(f"there is no tool {glob}", "/tools lists them")
        return found
