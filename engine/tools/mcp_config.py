"""Reads the usual `mcpServers` JSON: which servers there are and how each is reached."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import DataError

CONNECT_S, CALL_S = 30.0, 120.0
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SEPARATOR = re.compile(r"[^A-Za-z0-9-]{2}")
_HINT = "docs/tools.md shows what the file looks like"


@dataclass(frozen=True)
class ServerSpec:
    """One server: a `command` to start, or the `url` of one that runs.

    environment  variables it gets besides HOME, LOGNAME, PATH, SHELL, TERM and USER
    headers      sent with each request to the url
    timeout_s    seconds that one call may take
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool = False
    timeout_s: float = CALL_S

    @property
    def origin(self) -> str:
        """What people call it."""
        return f"the server {self.name}"


def read_servers(text: str, origin: str, environment: Mapping[str, str] | None = None) -> list[ServerSpec]:
    """The servers in `text`, those marked as disabled left out. Raises DataError that names the server.

    `${NAME}` and `${NAME:-otherwise}` in words, variables, headers and urls stand for variables of `environment`
    (os.environ by default), so that the file need hold no secret.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not JSON: {error}", _HINT) from error
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise DataError(f'{origin} has no "mcpServers" object', _HINT)
    known = os.environ if environment is None else environment
    return [
        _server(name, entry, f"{origin}, server {name}", known)
        for name, entry in servers.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    ]


def _server(name: str, entry: Any, where: str, known: Mapping[str, str]) -> ServerSpec:
    if not isinstance(entry, dict):
        raise DataError(f"{where} is no object", _HINT)
    if _SEPARATOR.search(name):  # or --allow-tool 'fs__*' would allow a server called fs__other too
        raise DataError(f"{where}: two underscores part a server's name from its tool's", "give it another name")
    entry = _expanded(entry, where, known)
    timeout = entry.get("timeout", CALL_S)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e6:
        raise DataError(f"{where}: its timeout is no number of seconds", _HINT)
    if isinstance(entry.get("url"), str):
        if not entry["url"].startswith(("http://", "https://")):
            raise DataError(f"{where}: its url is no http or https address", _HINT)
        headers = _pairs(entry, "headers", where)
        return ServerSpec(
            name, url=entry["url"], headers=headers, sse=entry.get("type") == "sse", timeout_s=float(timeout)
        )
    command, words, cwd = entry.get("command"), entry.get("args", []), entry.get("cwd")
    if not isinstance(command, str) or not command:
        raise DataError(f"{where} has neither a command nor a url", _HINT)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{where}: its args are no list of words", _HINT)
    if cwd is not None and not isinstance(cwd, str):
        raise DataError(f"{where}: its cwd is no path", _HINT)
    return ServerSpec(name, (command, *words), _pairs(entry, "env", where), cwd, timeout_s=float(timeout))


def _pairs(entry: dict[str, Any], name: str, where: str) -> dict[str, str]:
    pairs = entry.get(name, {})
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise DataError(f"{where}: its {name} are no object of texts", _HINT)
    return dict(pairs)


def _expanded(value: Any, where: str, known: Mapping[str, str]) -> Any:
    """The same JSON value with variables put in."""
    if isinstance(value, dict):
        return {name: _expanded(item, where, known) for name, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, where, known) for item in value]
    if not isinstance(value, str):
        return value

    def put_in(hit: re.Match[str]) -> str:
        found = known.get(hit[1]) or hit[2]
        if found is None:
            raise DataError(f"{where} wants the variable {hit[1]}, which is not set", f"set {hit[1]}, or write a value")
        return found

    return _VARIABLE.sub(put_in, value)
