"""Help: complete, in plain words, quick, and the same in the docs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli.app import build_app
from mlxchat.cli.other_commands import OTHER_COMMANDS
from mlxchat.cli.routing import COMMANDS, DEFAULT_COMMAND
from support.flags_page import chat_params, names, page
from support.run_program import environment, run_program
from typer.main import get_command

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    *("-m", "-s", "-f", "-o", "--temp", "--top-p", "--top-k", "--min-p", "--max-tokens", "--seed", "--think"),
    *("--no-think", "--think-budget", "--template", "--no-cache", "--cache-dir", "--cache-bytes", "--json", "--jsonl"),
    *("--no-stream", "--no-stdin", "--turns", "--yes", "--offline", "--color", "-q", "-v", "--version"),
)
HEAVY = (
    "mlx",
    "mlx_lm",
    "mlx_vlm",
    "transformers",
    "huggingface_hub",
    "numpy",
    "prompt_toolkit",
    "rich",
    "mcp",
    "jsonschema",
)


def test_every_flag_of_this_version_is_there() -> None:
    known = {name for param in chat_params() for name in [*param.opts, *param.secondary_opts]}
    assert set(FLAGS) <= known


@pytest.mark.parametrize("param", chat_params(), ids=lambda param: str(param.name))
def test_every_option_has_a_short_line_of_help(param: object) -> None:
    line = getattr(param, "help", None)
    assert line
    assert line.endswith(".")
    assert len(line) <= 90


def test_the_page_in_docs_is_what_the_options_say() -> None:
    written = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert written == page(), "run: python tests/support/flags_page.py > docs/flags.md"


def test_help_shows_every_option_and_command() -> None:
    done = run_program("--help")
    assert done.code == 0
    assert done.err == ""
    for param in chat_params():
        for name in names(param).replace(",", " ").replace("/", " ").replace("PROMPT", "[PROMPT]").split():
            assert name in done.out
    assert run_program("-h").out == done.out
    chat_help = run_program("hello", "--help")
    assert chat_help.code == 0
    assert "--think-budget" in chat_help.out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["replay"], [""], ["chat", "--help"]])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    source = (
        "import sys, json\n"
        "from mlxchat.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment(), check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "typer" in loaded
    assert not set(HEAVY) & set(loaded)


@pytest.mark.parametrize("name", sorted(OTHER_COMMANDS))
def test_the_help_line_of_a_command_is_its_own(name: str) -> None:
    command = OTHER_COMMANDS[name].load(name)
    assert command.name == name
    assert " ".join(command.help.split()).startswith(OTHER_COMMANDS[name].summary)
    assert OTHER_COMMANDS[name].summary in " ".join(run_program("--help").out.split())
    assert run_program(name, "--help").code == 0


def test_every_command_is_routed() -> None:
    assert {DEFAULT_COMMAND, *OTHER_COMMANDS} == set(COMMANDS)


def test_the_benchmark_compares_with_the_same_commands_and_options() -> None:
    spec = importlib.util.spec_from_file_location("help_benchmark", ROOT / "benchmarks" / "help.py")
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    scope: dict[str, Any] = {"__name__": "generated"}
    exec(benchmark.generated(), scope)
    empty: Any = get_command(scope["app"])
    ours: Any = get_command(build_app())
    assert sorted(empty.commands) == sorted(ours.list_commands(None))
    for name in empty.commands:
        assert shape(empty.commands[name]) == shape(ours.get_command(None, name))


def shape(command: Any) -> Any:
    """The commands and options below `command`, by name."""
    if hasattr(command, "commands"):
        return {name: shape(inner) for name, inner in command.commands.items()}
    return [(p.name, p.opts, p.secondary_opts, p.help) for p in command.params if p.name != "help"]
