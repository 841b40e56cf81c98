"""One tool of an MCP server, as whoever runs calls takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tool import Stopped, ToolResult

if TYPE_CHECKING:
    from .mcp_server import McpServer


class McpTool:
    """Carries out the calls of one of a server's tools. Equal to another of the same tool."""

    def __init__(self, server: McpServer, name: str) -> None:
        self._server = server
        self._name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, McpTool) and (self._server, self._name) == (other._server, other._name)

    def __hash__(self) -> int:
        return hash((self._server, self._name))

    def run(self, arguments: dict[str, Any], stopped: Stopped) -> ToolResult:
        """Call it."""
        return self._server.call(self._name, arguments, stopped)

    def describe(self, arguments: dict[str, Any]) -> str:
        """Whose tool it is."""
        return f"{self._name} of {self._server.spec.origin}"
