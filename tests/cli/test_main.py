"""The last step: how the process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.run_program import environment

pytestmark = pytest.mark.exact


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
