"""The MCP servers of a run, on one thread with an event loop of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import UsageError
from .mcp_config import CONNECT_S, ServerSpec
from .mcp_server import CLOSE_S, McpServer
from .tool import Tool


class McpServers:
    """Begins to connect at once. `logs` is the folder for what servers say on stderr; None keeps none of it."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        logs: Path | None,
        tell: Callable[[str], None],
        connect_s: float = CONNECT_S,
    ) -> None:
        for name in ("mcp", "client"):  # the library's two loggers; its words are for its developers
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mcp", daemon=True)
        self._thread.start()
        self.servers: list[McpServer] = []
        for spec in specs:
            log = None if logs is None else logs / f"{_file_name(spec.name)}.log"
            self.servers.append(McpServer(spec, self._loop, log, tell, connect_s))
        for server in self.servers:
            server.start()

    @property
    def tools(self) -> Sequence[Tool]:
        """Those of all servers that are, or were, connected; waits for those that are being connected.

        The tools of a server that has ended stay: without them the whole prompt would have to be read again.
        """
        for server in self.servers:
            if server.state == "starting":
                server.wait_ready()
        return [tool for server in self.servers for tool in server.tools if server.state != "off"]

    def refresh(self) -> None:
        """Before a turn: their tools may have changed."""
        for server in self.servers:
            server.refresh()

    def find(self, name: str) -> McpServer:
        """The server of that name. Raises UsageError."""
        for server in self.servers:
            if server.spec.name == name:
                return server
        raise UsageError(f"there is no server {name}", "/mcp lists them")

    def close(self) -> None:
        """End all of them; those that don't end by themselves are killed."""
        for server in self.servers:
            server.stop()
        deadline = time.monotonic() + CLOSE_S
        for server in self.servers:
            server.wait_over(max(0.0, deadline - time.monotonic()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _file_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in name)[:80] or "server"
