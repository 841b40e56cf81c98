"""One MCP server, through the official library: connected, listed, called and let go. Runs on the servers' own loop.

Sampling, roots and elicitation are refused: the library says so to a server for every callback that it isn't given.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..sanitize import sanitize
from .mcp_config import CONNECT_S, ServerSpec
from .mcp_content import result_of
from .mcp_listing import LIMITS, Listing
from .mcp_tool import McpTool
from .server_log import ServerLog
from .tool import Stopped, Tool, ToolResult, identity_of

if TYPE_CHECKING:
    import anyio
    from mcp import Client

State = Literal["starting", "ready", "failed", "ended", "off"]
POLL_S = 0.05
REFRESH_S = 2.0
CLOSE_S = 8.0
"""The library asks a server to end for two seconds, then terminates it, then kills it."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")


class McpServer:
    """`tell` gets one line for the user when the server can't be had, ends, or changes its tools."""

    def __init__(
        self,
        spec: ServerSpec,
        loop: asyncio.AbstractEventLoop,
        log: Path | None,
        tell: Callable[[str], None],
        connect_s: float = CONNECT_S,
    ) -> None:
        self.spec = spec
        self.state: State = "off"
        self.tools: list[Tool] = []
        self.left_out = ""  # what it lists besides, in words
        self._loop, self._log_path, self._tell, self._connect_s = loop, log, tell, connect_s
        self._client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._log: ServerLog | None = None
        self._settled = threading.Event()  # it is ready, or never will be
        self._over = threading.Event()
        self._over.set()

    # -- from the user's thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; returns at once."""
        if self.state in ("starting", "ready"):
            return
        self._over.wait(CLOSE_S)
        self.state = "starting"
        self._settled.clear()
        self._over.clear()
        asyncio.run_coroutine_threadsafe(self._live(), self._loop)

    def wait_ready(self) -> None:
        """Until it is connected, or its time to connect is up."""
        if not self._settled.wait(self._connect_s):
            self._fail("failed", f"did not answer within {self._connect_s:g} seconds")
            self.stop()

    def stop(self) -> None:
        """Let go of it; returns at once. `wait_over` waits for its process to end."""
        if self.state in ("starting", "ready"):
            self.state = "off"
        self._loop.call_soon_threadsafe(self._cancel)

    def wait_over(self, timeout_s: float) -> None:
        """Until its process has ended."""
        self._over.wait(timeout_s)

    def refresh(self) -> None:
        """Ask again for its tools. One that doesn't answer at once keeps those it had."""
        client = self._client
        if self.state != "ready" or client is None:
            return
        task = asyncio.run_coroutine_threadsafe(self._list(client), self._loop)
        try:
            listing = task.result(REFRESH_S)
        except TimeoutError:
            task.cancel()
        except Exception as error:
            self._is_gone(error)
        else:
            if listing.tools != self.tools:
                self._tell(f"{self.spec.origin} has changed its tools")
            self._take(listing)

    def call(self, name: str, arguments: dict[str, Any], stopped: Stopped) -> ToolResult:
        """One call of the tool that the server calls `name`. Everything that goes wrong is a result that says so."""
        client = self._client
        if self.state != "ready" or client is None:
            return ToolResult("failed", f"error: {self.spec.origin} isn't running")
        task = asyncio.run_coroutine_threadsafe(client.call_tool(name, arguments), self._loop)
        left = self.spec.timeout_s
        try:
            while not stopped():
                try:
                    return result_of(task.result(min(POLL_S, left)))
                except TimeoutError:
                    left -= POLL_S
                    if task.done() or left <= 0:
                        return ToolResult("timed_out", f"error: no answer within {self.spec.timeout_s:g} seconds")
            return ToolResult("interrupted", "stopped by the user")
        except Exception as error:
            if self._is_gone(error):
                return ToolResult("failed", f"error: {self.spec.origin} has ended")
            return ToolResult("failed", f"error: {_one_line(error)}")
        finally:
            task.cancel()

    def _is_gone(self, error: Exception) -> bool:
        """Whether the connection has broken off; if so it is said, and let go of."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            self._fail("ended", "has ended")
            self.stop()
            return True
        return False

    # -- on the loop -------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Connect, and stay until cancelled. Entered and left by one task, as the library's scopes must be."""
        import anyio
        from mcp import Client

        log = self._log = ServerLog(self._log_path)
        try:
            with anyio.CancelScope() as self._scope:
                async with Client(self._transport(log)) as client:
                    log.close()
                    self._take(await self._list(client))
                    if self.state == "starting":
                        self._client, self.state = client, "ready"
                    self._settled.set()
                    await anyio.sleep_forever()
        except Exception as error:
            self._fail("failed", f"can't be used: {_one_line(_first(error))}")
        finally:
            log.close()
            self._client = None
            self._settled.set()
            self._over.set()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    @asynccontextmanager
    async def _transport(self, log: ServerLog) -> AsyncIterator[Any]:
        """The way to the server, as the library's client takes it: two streams."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        spec = self.spec
        if spec.url is None:
            command, *words = spec.command
            wanted = StdioServerParameters(command=command, args=words, env=dict(spec.environment), cwd=spec.cwd)
            async with stdio_client(wanted, errlog=log.stream) as streams:
                yield streams
        elif spec.sse:
            from mcp.client.sse import sse_client

            async with sse_client(spec.url, headers=dict(spec.headers)) as streams:
                yield streams
        else:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            patience = httpx2.Timeout(CONNECT_S, read=spec.timeout_s)
            async with (
                httpx2.AsyncClient(headers=dict(spec.headers), timeout=patience) as http,
                streamable_http_client(spec.url, http_client=http) as streams,
            ):
                yield streams

    async def _list(self, client: Client) -> Listing:
        """Its tools, named after it, so that no server can pass for another."""
        listing, cursor = Listing(), None
        while True:
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            cursor = page.next_cursor
            if not listing.wants_more([self._tool(one) for one in page.tools], goes_on=cursor is not None):
                return listing

    def _take(self, listing: Listing) -> None:
        """These are its tools from now on; what is left out of them is said once."""
        self.tools = listing.tools
        if listing.left_out not in ("", self.left_out):
            self._tell(f"{self.spec.origin} lists too much, left out: {listing.left_out}; {LIMITS}")
        self.left_out = listing.left_out

    def _tool(self, listed: Any) -> Tool:
        name = f"{_ODD.sub('_', self.spec.name)}__{_ODD.sub('_', listed.name)}"
        function = {"name": name, "description": listed.description or "", "parameters": listed.input_schema}
        spec = self.spec
        reached = [spec.name, list(spec.command), dict(spec.environment), spec.cwd, spec.url, listed.name]
        return Tool(name, function, spec.origin, identity_of(reached, function), McpTool(self, listed.name))

    def _fail(self, state: State, words: str) -> None:
        """Say once that it is gone, with its own last words if it had any."""
        if self.state not in ("starting", "ready"):
            return
        self.state = state
        said = self._log.last_words() if self._log is not None else ""
        self._tell(f"{self.spec.origin} {words}{f' ({said})' if said else ''}")


def _first(error: BaseException) -> BaseException:
    """The cause inside a group of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _one_line(error: BaseException) -> str:
    """What it says, which may be a server's own words."""
    return " ".join(sanitize(str(error)).split())[:300] or type(error).__name__
