"""Runs the program in a process of its own, with the fake engine inside unless told otherwise."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("program.py")
PATIENCE_S = 60


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object that stdout must be."""
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON objects of --jsonl."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error_lines(self) -> list[str]:
        return self.err.splitlines()


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would change how the program behaves, and with a home where chats were saved."""
    changing = ("MLXCHAT_", "NO_COLOR", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    return {**kept, "MLXCHAT_HOME": str(_home()), **(more or {})}


@functools.cache
def _home() -> Path:
    """A home for all runs of this process that name none."""
    home = Path(tempfile.mkdtemp(prefix="mlxchat-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "sessions").mkdir()
    return home


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAM), *arguments]


def run_program(
    *arguments: str, stdin: bytes | int = b"", environ: Mapping[str, str] | None = None, fake: bool = True
) -> Ended:
    """Run `mlxchat ARGUMENTS` to its end. `stdin` is its input, or a file descriptor."""
    argv = command(*arguments) if fake else [sys.executable, "-m", "mlxchat", *arguments]
    source: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    done = subprocess.run(argv, **source, capture_output=True, env=environment(environ), timeout=PATIENCE_S)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
