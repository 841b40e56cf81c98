"""A tool that is a command of this machine: its arguments become words of the command line, or JSON on its stdin."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from .process import run_process
from .tool import Stopped, ToolResult

Input = Literal["argv", "stdin"]
ALWAYS_PASSED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")
"""The variables that every command gets; the file names those it needs besides."""

_PLACE = re.compile(r"\{([A-Za-z0-9_-]+)\}")


class BadArguments(Exception):
    """The call's arguments can't be used; the words are for the model."""


@dataclass(frozen=True)
class Command:
    """How the calls of one tool are carried out.

    command      the words of the command line; with input "argv", `{name}` in them stands for that argument
    parameters   the JSON schema that arguments must meet
    timeout_s    seconds until it is killed
    environment  names of variables that it gets besides ALWAYS_PASSED
    """

    command: tuple[str, ...]
    parameters: Mapping[str, Any]
    input: Input = "stdin"
    timeout_s: float = 60.0
    environment: tuple[str, ...] = ()

    def run(self, arguments: dict[str, Any], stopped: Stopped) -> ToolResult:
        """Run it once. Everything that goes wrong is a result that says so."""
        try:
            self.check(arguments)
            words = self.words(arguments)
            given = json.dumps(arguments).encode() if self.input == "stdin" else b""
            ended = run_process(words, self._passed(), given, self.timeout_s, stopped)
        except BadArguments as error:
            return ToolResult("failed", f"error: {error}")
        except (OSError, ValueError) as error:  # ValueError: a zero byte, or half a character, in an argument
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            return ToolResult("failed", f"error: {self.command[0]} can't be run: {why}")
        if ended.how == "stopped":
            return ToolResult("interrupted", _with_note(ended.output, "stopped by the user"))
        if ended.how == "timed_out":
            return ToolResult("timed_out", _with_note(ended.output, f"killed after {self.timeout_s:g} seconds"))
        if ended.code:
            return ToolResult("failed", _with_note(ended.output, _code_words(ended.code)))
        return ToolResult("ran", ended.output)

    def describe(self, arguments: dict[str, Any]) -> str:
        """The command line as a shell would take it."""
        try:
            line = shlex.join(self.words(arguments))
        except BadArguments:
            line = shlex.join(self.command)
        return line if self.input == "argv" else f"{line}, with the arguments on stdin"

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise BadArguments unless the schema allows these arguments. The first thing wrong is named."""
        fault = next(self._validator.iter_errors(arguments), None)
        if fault is not None:
            at = f"{fault.json_path.removeprefix('$.')}: " if fault.json_path != "$" else ""
            raise BadArguments(f"the arguments are not as they should be: {at}{' '.join(fault.message.split())[:300]}")

    def words(self, arguments: dict[str, Any]) -> list[str]:
        """The command line with the arguments in their places. Raises BadArguments.

        A word whose argument is missing is left out; a word that is nothing but a list's place becomes a word for each
        item.
        """
        if self.input == "stdin":
            return list(self.command)
        places = {name for word in self.command for name in _PLACE.findall(word)}
        unplaced = sorted(set(arguments) - (places & self._names))
        if unplaced:
            raise BadArguments(f"there is no argument called {unplaced[0]}")
        out: list[str] = []
        for word in self.command:
            for one in self._filled(word, arguments):
                _check_dash(word, one, out)
                out.append(one)
        return out

    def _filled(self, word: str, arguments: dict[str, Any]) -> list[str]:
        names = [name for name in _PLACE.findall(word) if name in self._names]
        if any(arguments.get(name) is None for name in names):
            return []
        if names and word == f"{{{names[0]}}}" and isinstance(arguments[names[0]], list):
            return [_as_word(item) for item in arguments[names[0]]]
        return [_PLACE.sub(lambda hit: _as_word(arguments[hit[1]]) if hit[1] in names else hit[0], word)]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.parameters.get("properties", {}))

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        # with a registry of its own it fetches no schema that a reference names
        return Draft202012Validator(dict(self.parameters), registry=Registry())

    def _passed(self) -> dict[str, str]:
        wanted = (*ALWAYS_PASSED, *self.environment)
        return {name: os.environ[name] for name in wanted if name in os.environ}


def _check_dash(word: str, filled: str, before: list[str]) -> None:
    """A model's text must not become an option of the command, unless the file says where options end."""
    if filled != word and word.startswith("{") and filled.startswith("-") and "--" not in before:
        raise BadArguments(f"the value {filled[:40]!r} begins with a dash, and would be an option")


def _as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _with_note(output: str, note: str) -> str:
    return f"{output.rstrip()}\n[{note}]".lstrip()


def _code_words(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"killed by signal {-code}"
