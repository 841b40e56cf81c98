"""Tab in a shell: commands and the chat's options, without anything heavy."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlxchat.cli.completions import model_names, session_ids
from mlxchat.cli.other_commands import OTHER_COMMANDS
from support.model_folders import huggingface_snapshot, isolate, make_folder
from support.run_program import command, environment, run_program
from support.terminal import Terminal

pytestmark = pytest.mark.plain


def completed(line: str, **more: str) -> list[str]:
    words = line.split(" ")
    environ = {"_MLXCHAT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return run_program(environ=environ | more).out.split()


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


def test_models_and_saved_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    huggingface_snapshot(tmp_path, "org/tiny-model", make_folder(tmp_path / "tiny"))
    home = tmp_path / "mlxchat"
    (home / "sessions").mkdir(parents=True)
    (home / "sessions" / "53f345c2dc2b.jsonl").write_text("{}\n")
    (home / "config.toml").write_text('[aliases]\nsmart = "org/tiny-model"\n')
    assert model_names("") == ["smart", "org/tiny-model", "smollm2", "gemma3-270m"]
    assert model_names("ORG/") == ["org/tiny-model"]
    assert session_ids("53") == ["53f345c2dc2b"]
    assert session_ids("6") == []
    place = {"MLXCHAT_HOME": str(home), "HOME": str(tmp_path)}
    assert completed("mlxchat -m sma", **place) == ["smart"]
    assert completed("mlxchat hello -r 5", **place) == ["53f345c2dc2b"]
    assert completed("mlxchat sessions show 5", **place) == ["53f345c2dc2b"]
    assert completed("mlxchat models info sm", **place) == ["smart", "smollm2"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    done = run_program(environ={"_MLXCHAT_COMPLETE": f"source_{shell}"})
    assert done.code == 0
    assert "_MLXCHAT_COMPLETE" in done.out


def test_completing_names_imports_nothing_heavy() -> None:
    source = (
        "import sys\n"
        "from mlxchat.cli.completions import model_names, session_ids\n"
        "model_names(''), session_ids('')\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment(), check=True)
    assert not any(f"'{name}'" in done.stdout for name in ("mlx", "mlx_lm", "transformers", "huggingface_hub", "numpy"))


SHELLS = {
    "bash": (["--norc", "-i"], 'eval "$(_MLXCHAT_COMPLETE=source_bash mlxchat)"'),
    "zsh": (["-f", "-i"], 'autoload -Uz compinit; compinit -D; eval "$(_MLXCHAT_COMPLETE=source_zsh mlxchat)"'),
    "fish": (["--no-config"], "_MLXCHAT_COMPLETE=source_fish mlxchat | source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_in_the_shell_itself(shell: str, tmp_path: Path) -> None:
    where = shutil.which(shell)
    if where is None:
        pytest.skip(f"{shell} is not on this machine")
    program = tmp_path / "bin" / "mlxchat"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    program.chmod(0o755)
    arguments, script = SHELLS[shell]
    environ = environment({"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)})
    with Terminal(arguments, environ, where) as terminal:
        terminal.line(script)
        terminal.line("echo rea''dy")
        terminal.wait_for("(?m)^ready$")
        terminal.send("mlxchat mode\t")
        terminal.wait_for(r"mlxchat models\b")
        terminal.send("li\t")
        terminal.wait_for(r"mlxchat models list\b")
        terminal.send("--js\t")
        terminal.wait_for(r"mlxchat models list --json\b")
