"""Reads files of tools: OpenAI-style definitions, each bound to a command or only described. docs/tools.md has them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from ...errors import DataError
from .command import Command
from .tool import Tool, identity_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BINDING = ("command", "input", "timeout", "environment")
_HINT = "docs/tools.md shows what a file of tools looks like"
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def read_tools(text: str, origin: str, *, bound: bool) -> list[Tool]:
    """The tools in `text`, a JSON list. `bound`: each must name its command; else commands are left alone.

    Raises DataError that names the tool and what is wrong with it.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not JSON: {error}", _HINT) from error
    if isinstance(found, dict) and isinstance(found.get("tools"), list):
        found = found["tools"]
    if not isinstance(found, list):
        raise DataError(f"{origin} is no list of tools", _HINT)
    tools = [_tool(entry, f"{origin}, tool {number}", origin, bound) for number, entry in enumerate(found, 1)]
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{origin} has two tools called {twice}", "give one of them another name")
    return tools


def _tool(entry: Any, where: str, origin: str, bound: bool) -> Tool:
    if not isinstance(entry, dict) or not isinstance(entry.get("function"), dict):
        raise DataError(f'{where} is no {{"type": "function", "function": {{…}}}}', _HINT)
    unknown = sorted(set(entry) - {"type", "function", *_BINDING})
    if unknown or entry.get("type", "function") != "function":
        raise DataError(f"{where} has {unknown[0] if unknown else 'a type'}, which means nothing here", _HINT)
    function = _function(entry["function"], where)
    name: str = function["name"]
    if not bound:
        return Tool(name, function, origin, identity_of(origin, function))
    command = _command(entry, function, f"{where} ({name})")
    return Tool(name, function, origin, identity_of(origin, function, asdict(command)), command)


def _function(function: dict[str, Any], where: str) -> dict[str, Any]:
    """The function as the model is shown it, its parameters filled in where it has none."""
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataError(f"{where} needs a name of letters, digits, _ and -", _HINT)
    parameters = function.get("parameters", _NO_PARAMETERS)
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties", {}), dict):
        raise DataError(f"{where} ({name}): its parameters are no JSON schema of an object", _HINT)
    if not isinstance(function.get("description", ""), str):
        raise DataError(f"{where} ({name}): its description is no text", _HINT)
    try:
        json.dumps(function, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError(f"{where} ({name}) holds half a character", _HINT) from None
    return {**function, "parameters": parameters}


def _command(entry: dict[str, Any], function: dict[str, Any], where: str) -> Command:
    words, given = entry.get("command"), entry.get("input", "stdin")
    timeout, environment = entry.get("timeout", Command.timeout_s), entry.get("environment", [])
    if words is None:
        raise DataError(f"{where} has no command to run", "bind one, or give the file to --tool-schemas")
    if not _texts(words) or not words or not words[0]:
        raise DataError(f"{where}: its command is no list of words", "a shell is never used: one string per word")
    if given not in ("argv", "stdin"):
        raise DataError(f"{where}: its input is {given!r}", "it is argv or stdin")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e6:
        raise DataError(f"{where}: its timeout is no number of seconds", _HINT)
    if not _texts(environment) or not all(_VARIABLE.fullmatch(name) for name in environment):
        raise DataError(f"{where}: its environment is no list of names of variables", _HINT)
    _check_schema(function["parameters"], where)
    return Command(tuple(words), function["parameters"], given, float(timeout), tuple(environment))


def _check_schema(parameters: dict[str, Any], where: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(parameters)
    except SchemaError as error:
        words = " ".join(error.message.split())[:200]
        raise DataError(f"{where}: its parameters are no JSON schema: {words}", _HINT) from error


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
