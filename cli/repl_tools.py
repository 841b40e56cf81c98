"""/tools and /mcp: what the model is told of, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from .repl_state import Command, counted
from .streams import Streams
from .text_table import aligned
from .tool_lines import visible
from .tool_setup import RunTools

if TYPE_CHECKING:
    from ..engine.tools.loop import ToolLoop
    from ..engine.tools.mcp_server import McpServer
    from ..engine.tools.mcp_servers import McpServers
    from ..engine.tools.tool import Tool

_STATES = {
    "starting": "connecting",
    "ready": "connected",
    "failed": "not to be had",
    "ended": "has ended",
    "off": "off",
}


class ReplTools:
    """
    say_cost   says a line, and with it what a change makes the model read again
    count      gives the tokens of each text
    """

    def __init__(
        self,
        tools: RunTools,
        streams: Streams,
        say_cost: Callable[[str], None],
        count: Callable[[Sequence[str]], list[int]],
    ) -> None:
        self._tools = tools
        self._streams = streams
        self._say_cost = say_cost
        self._count = count

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {"/tools": self.tools, "/mcp": self.mcp}

    def tools(self, argument: str) -> None:
        """List, or enable or disable by name or glob. Raises UsageError."""
        loop = self._tools.loop
        if loop is None:
            self._streams.note("there are no tools; mlxchat --tools FILE or --mcp CONFIG brings some")
            return
        verb, name = _verb(argument, "/tools")
        if verb is None:
            self._list(loop)
            return
        changed = (loop.toolbox.enable if verb == "enable" else loop.toolbox.disable)(name)
        self._say_changed(changed, verb)

    def mcp(self, argument: str) -> None:
        """List the servers, or start one (again), or end it. Raises UsageError."""
        servers = self._tools.servers
        if servers is None:
            self._streams.note("there are no servers; mlxchat --mcp CONFIG brings some")
            return
        verb, name = _verb(argument, "/mcp")
        if verb is None:
            self._list_servers(servers)
            return
        before = self._tools.schemas()
        server = servers.find(name)
        if verb == "enable":
            server.start()
            server.wait_ready()
        else:
            server.stop()
        if self._tools.schemas() != before:
            self._say_cost(self._server_line(server))
        else:
            self._streams.note(self._server_line(server))

    def _list(self, loop: ToolLoop) -> None:
        tools = loop.toolbox.tools
        if not tools:
            self._streams.note("no server has any tools; /mcp lists them")
            return
        offered, tokens = {tool.name for tool in loop.toolbox.offered}, self._tokens(tools)
        digits = max(len(f"{count:,}") for count in tokens)
        rows = []
        for tool, count in zip(tools, tokens, strict=True):
            state = _state(tool, loop) if tool.name in offered else "off"
            words = visible(tool.summary or tool.origin)
            rows.append((tool.name, state, f"{count:>{digits},} tokens", words))
        for line in aligned(rows):
            self._streams.note(line)
        told = sum(count for tool, count in zip(tools, tokens, strict=True) if tool.name in offered)
        self._streams.note(f"about {counted(told, 'token')} of every prompt")

    def _list_servers(self, servers: McpServers) -> None:
        for server in servers.servers:
            self._streams.note(self._server_line(server))

    def _server_line(self, server: McpServer) -> str:
        line = f"{server.spec.name}  {_STATES[server.state]}"
        if server.state != "ready":
            return line
        tokens = f", about {counted(sum(self._tokens(server.tools)), 'token')}" if server.tools else ""
        left_out = f"; left out: {server.left_out}" if server.left_out else ""
        return f"{line}, {counted(len(server.tools), 'tool')}{tokens}{left_out}"

    def _tokens(self, tools: Sequence[Tool]) -> list[int]:
        """What each takes of a prompt, nearly: templates write definitions as JSON, with words around them."""
        texts = (json.dumps(tool.schema, ensure_ascii=False) for tool in tools)
        return self._count([text.encode(errors="replace").decode() for text in texts]) if tools else []

    def _say_changed(self, changed: list[str], verb: str) -> None:
        if not changed:
            self._streams.note(f"nothing to {verb}: it is so already")
            return
        self._say_cost(f"{', '.join(changed)}: {'told to the model' if verb == 'enable' else 'no longer told'}")


def _state(tool: Tool, loop: ToolLoop) -> str:
    """What becomes of a call of it."""
    if tool.runner is None:
        return "described"
    return "runs" if loop.approvals.allows(tool) else "asks"


def _verb(argument: str, command: str) -> tuple[str | None, str]:
    """("enable" or "disable", the name); (None, "") where nothing is asked. Raises UsageError."""
    if not argument:
        return None, ""
    verb, _, name = argument.partition(" ")
    if verb not in ("enable", "disable") or not name.strip():
        raise UsageError(f"{command} takes enable NAME or disable NAME", f"{command} alone lists them")
    return verb, name.strip()
