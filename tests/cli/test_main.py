"""The last step: how the process ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.run_program import environment
from support.schemas import validate

pytestmark = pytest.mark.plain


def ended(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment())


def test_a_ctrl_c_while_the_program_is_still_being_read_is_quiet() -> None:
    done = ended(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "from mlxchat.cli.main import main\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "main(['hello'])\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


INTERRUPTED_AT = """
import json, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
from mlxchat.cli.main import main
sys.meta_path.insert(0, Interrupting())
main({arguments!r})
"""


@pytest.mark.parametrize(
    "module", ["mlxchat.cli.run", "typer", "typer.core", "mlxchat.cli.app", "mlxchat.cli.failures"]
)
@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["hello", "--json"], "mlxchat.chat/1"),
        (["--turns", "-", "--json"], "mlxchat.turns/1"),
        (["models", "list", "--json"], "mlxchat.error/1"),
    ],
)
def test_in_json_it_is_said(module: str, arguments: list[str], schema: str) -> None:
    done = ended(INTERRUPTED_AT.format(module=module, arguments=arguments))
    assert (done.returncode, done.stderr) == (130, "")
    value = validate(json.loads(done.stdout))
    assert value["schema"] == schema
    assert value["error"] == {"code": "interrupted", "message": "interrupted", "hint": ""}


def test_as_events_too() -> None:
    done = ended(INTERRUPTED_AT.format(module="typer", arguments=["hello", "--jsonl"]))
    assert [validate(json.loads(line))["type"] for line in done.stdout.splitlines()] == ["error", "done"]


def test_words_after_two_dashes_are_no_options() -> None:
    done = ended(INTERRUPTED_AT.format(module="typer", arguments=["--", "--json"]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_with_mlx_loaded_its_teardown_cannot_change_the_exit_code() -> None:
    done = ended(
        "import atexit, os, sys, types\n"
        "sys.modules['mlx.core'] = types.ModuleType('mlx.core')\n"
        "atexit.register(os.abort)\n"
        "from mlxchat.cli.main import main\n"
        "main(['--version'])\n"
    )
    assert done.returncode == 0
    assert done.stdout.startswith("mlxchat ")


def test_without_mlx_it_ends_as_any_program_does() -> None:
    done = ended(
        "import atexit\natexit.register(print, 'at exit')\nfrom mlxchat.cli.main import main\nmain(['--version'])\n"
    )
    assert done.stdout.endswith("at exit\n")


@pytest.mark.parametrize("place", ["session_commands.SessionStore.readable", "app.route"])
def test_ctrl_c_in_any_command_leaves_json(place: str) -> None:
    done = ended(
        "from unittest import mock\n"
        "from mlxchat.cli import app, session_commands\n"
        "from mlxchat.cli.main import main\n"
        f"with mock.patch('mlxchat.cli.{place}', side_effect=KeyboardInterrupt):\n"
        "    main(['sessions', 'list', '--json'])\n"
    )
    assert (done.returncode, done.stderr) == (130, "")
    assert validate(json.loads(done.stdout))["error"]["code"] == "interrupted"


@pytest.mark.parametrize("arguments", [["hello", "--json"], ["replay", "trace.jsonl", "--json"]])
def test_what_a_library_prints_stays_out_of_the_json(arguments: list[str]) -> None:
    module = "replay_run" if arguments[0] == "replay" else "chat_run"
    done = ended(
        "from unittest import mock\n"
        f"from mlxchat.cli import {module}\n"
        "from mlxchat.cli.main import main\n"
        "def work(*_):\n"
        "    print('Error importing a library')\n"
        "    raise KeyboardInterrupt\n"
        f"with mock.patch('mlxchat.cli.{module}._run', work):\n"
        f"    main({arguments!r})\n"
    )
    assert (done.returncode, done.stderr) == (130, "Error importing a library\n")
    assert validate(json.loads(done.stdout))["error"]["code"] == "interrupted"
