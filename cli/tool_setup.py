"""The tools of a run, by its flags: files read, servers begun, who is asked. `close` ends the servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from .chat_flags import ChatFlags
from .input_sources import read_text
from .streams import Streams

if TYPE_CHECKING:
    from ..engine.engine import EngineInfo
    from ..engine.tools.loop import ToolLoop
    from ..engine.tools.mcp_config import ServerSpec
    from ..engine.tools.mcp_servers import McpServers
    from ..engine.tools.tool import Tool


class RunTools:
    """What there is of tools. `loop` None: the model is told of none.

    Only the command line and the user's own settings make one: no saved chat and no file of the working folder can.
    """

    def __init__(self, loop: ToolLoop | None = None, servers: McpServers | None = None) -> None:
        self.loop = loop
        self.servers = servers

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """What the model is told of; waits for servers that are still being connected."""
        return () if self.loop is None else self.loop.toolbox.schemas()

    def settle(self, info: EngineInfo, tell: Callable[[str], None]) -> None:
        """Before the first turn: wait for the servers, and say if this model can't call what there is."""
        if self.schemas() and not info.tools:
            tell(f"{info.model} knows no tool calls: it won't use the tools")

    def close(self) -> None:
        """End the servers."""
        if self.servers is not None:
            self.servers.close()


class ToolFiles:
    """The files named on the command line or in the user's settings, read and checked. Nothing has been started yet."""

    def __init__(self, flags: ChatFlags) -> None:
        """Raises InputError, DataError, and UsageError for flags that mean nothing without tools."""
        self._flags = flags
        self.tools: list[Tool] = []
        self.servers: list[ServerSpec] = []
        if flags.tools or flags.tool_schemas or flags.mcp:
            self._read()
        elif flags.allow_tool or flags.max_steps is not None:
            name = "--allow-tool" if flags.allow_tool else "--max-steps"
            raise UsageError(f"{name} means nothing without tools", "give some: --tools FILE or --mcp CONFIG")

    def _read(self) -> None:
        from ..engine.tools.mcp_config import read_servers
        from ..engine.tools.tool_file import read_tools

        for name in self._flags.tools or []:
            self.tools += read_tools(read_text(name), name, bound=True)
        for name in self._flags.tool_schemas or []:
            self.tools += read_tools(read_text(name), name, bound=False)
        for name in self._flags.mcp or []:
            self.servers += read_servers(read_text(name), name)
        names = [server.name for server in self.servers]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"two servers are called {twice}", "give one of them another name")
        far = next((server.name for server in self.servers if server.url is not None), None)
        if far is not None and self._flags.offline:
            raise UsageError(f"--offline and the server {far} can't go together", "it is reached by its url")

    def open(self, streams: Streams, asks: bool, tell: Callable[[str], None] | None = None) -> RunTools:
        """Begin to connect to the servers.

        asks    whether there is a person at the terminal to ask about calls
        tell    gets single lines for the user, also from other threads; None: they are noticed on `streams`
        """
        if not self.tools and not self.servers:
            return RunTools()
        tell = tell or streams.notice
        from ..engine.folders import state_dir
        from ..engine.tools.approvals import Approvals
        from ..engine.tools.loop import MAX_STEPS, ToolLoop
        from ..engine.tools.toolbox import Toolbox
        from .consent import TerminalConsent

        servers: McpServers | None = None
        if self.servers:
            from ..engine.tools.mcp_servers import McpServers

            servers = McpServers(self.servers, None if self._flags.no_save else state_dir() / "mcp", tell)
        toolbox = Toolbox(self.tools, servers, tell)
        ask = TerminalConsent(streams, lambda: loop.stopped) if asks else None
        approvals = Approvals(self._flags.allow_tool or (), ask)
        loop = ToolLoop(toolbox, approvals, self._flags.max_steps or MAX_STEPS)
        return RunTools(loop, servers)
