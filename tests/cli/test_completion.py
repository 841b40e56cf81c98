"""Tab in a shell: commands and the chat's options, without anything heavy."""

from __future__ import annotations

import pytest
from mlxchat.cli.other_commands import OTHER_COMMANDS
from support.run_program import run_program

pytestmark = pytest.mark.plain


def completed(line: str) -> list[str]:
    words = line.split(" ")
    environ = {"_MLXCHAT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return run_program(environ=environ).out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mlxchat mod", ["models"]),
        ("mlxchat ", list(OTHER_COMMANDS)),
        ("mlxchat --tem", ["--template", "--temp"]),
        ("mlxchat hello --tem", ["--template", "--temp"]),
        ("mlxchat -m x --json", ["--json", "--jsonl"]),
        ("mlxchat --color a", ["auto", "always"]),
        ("mlxchat hello --color a", ["auto", "always"]),
        ("mlxchat models l", ["list"]),
        ("mlxchat models list --js", ["--json"]),
        ("mlxchat modles --seed --no-s", ["--no-stdin", "--no-save", "--no-stream"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str]) -> None:
    assert completed(line) == offered
