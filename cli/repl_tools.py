"""/tools and /mcp: what the model is told of, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import UsageError
from .repl_state import Command
from .streams import Streams
from .tool_lines import visible
from .tool_setup import RunTools

if TYPE_CHECKING:
    from ..engine.tools.loop import ToolLoop
    from ..engine.tools.mcp_server import McpServer
    from ..engine.tools.mcp_servers import McpServers

_STATES = {
    "starting": "connecting",
    "ready": "connected",
    "failed": "not to be had",
    "ended": "has ended",
    "off": "off",
}


class ReplTools:
    """`say_cost` says a line, and with it what a change makes the model read again."""

    def __init__(self, tools: RunTools, streams: Streams, say_cost: Callable[[str], None]) -> None:
        self._tools = tools
        self._streams = streams
        self._say_cost = say_cost

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
            self._say_cost(_server_line(server))
        else:
            self._streams.note(_server_line(server))

    def _list(self, loop: ToolLoop) -> None:
        offered = {tool.name for tool in loop.toolbox.offered}
        tools = loop.toolbox.tools
        width = max((len(tool.name) for tool in tools), default=0)
        for tool in tools:
            if tool.name not in offered:
                state = "off"
            elif tool.runner is None:
                state = "described"
            else:
                state = "runs" if loop.approvals.allows(tool) else "asks"
            self._streams.note(f"{tool.name:<{width}}  {state:<9}  {visible(tool.summary or tool.origin)}")
        if not tools:
            self._streams.note("no server has any tools; /mcp lists them")

    def _list_servers(self, servers: McpServers) -> None:
        for server in servers.servers:
            self._streams.note(_server_line(server))

    def _say_changed(self, changed: list[str], verb: str) -> None:
        if not changed:
            self._streams.note(f"nothing to {verb}: it is so already")
            return
        self._say_cost(f"{', '.join(changed)}: {'told to the model' if verb == 'enable' else 'no longer told'}")


def _verb(argument: str, command: str) -> tuple[str | None, str]:
    """("enable" or "disable", the name); (None, "") where nothing is asked. Raises UsageError."""
    if not argument:
        return None, ""
    verb, _, name = argument.partition(" ")
    if verb not in ("enable", "disable") or not name.strip():
        raise UsageError(f"{command} takes enable NAME or disable NAME", f"{command} alone lists them")
    return verb, name.strip()


def _server_line(server: McpServer) -> str:
    line = f"{server.spec.name}  {_STATES[server.state]}"
    if server.state == "ready":
        count = len(server.tools)
        line += f", {count} tool{'s' * (count != 1)}"
    return line
