"""A kill in the middle of an answer leaves no file anywhere."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import Scripted, finished
from support.scripted import model_folder

pytestmark = pytest.mark.plain

PROMPT = "The window, the layer, the block and the prefix. " * 60
NAMED = """
import os, tempfile
from mlxchat.cache.files import FileSystem
FileSystem.open_unlinked = lambda self, directory: tempfile.mkstemp(dir=directory)[0]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("killed") / "model")


def with_own_temporary(run: Scripted) -> Scripted:
    (run.work / "tmp").mkdir()
    run.environment["TMPDIR"] = str(run.work / "tmp")
    return run


def left_behind(run: Scripted) -> list[Path]:
    """Whatever the program wrote; MLX's compiled kernels, which every run shares, are not its own."""
    folders = (run.kv, run.work / "tmp", run.work / "home")
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    return [path for path in found if run.work / "tmp" / "mlx" not in path.parents]


def scratch_bytes(process: subprocess.Popen[bytes], folder: Path) -> int:
    """The size of the nameless file that the process holds open in `folder`; 0 if there is none."""
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        target = str(link.readlink())
        if target.startswith(str(folder)) and target.endswith("(deleted)"):
            return link.stat().st_size
    return 0


def killed_in_decode(model: Path, work: Path, prelude: str = "") -> tuple[Scripted, int]:
    """A run killed while it held its sixth token; bytes in its scratch file just before."""
    run = with_own_temporary(Scripted(model, work, "One two three four five six seven."))
    (run.work / "prompt.txt").write_text(PROMPT)
    run.gate.hold("1.token.6")
    process = run.start("-f", "prompt.txt", prelude=prelude)
    run.gate.wait_held()
    held = scratch_bytes(process, run.kv) if sys.platform == "linux" else -1
    process.send_signal(signal.SIGKILL)
    assert finished(process).code == -signal.SIGKILL
    return run, held


def test_a_kill_in_decode_leaves_no_file(model: Path, tmp_path: Path) -> None:
    run, held = killed_in_decode(model, tmp_path / "run")
    assert held != 0, "records were on disk when it was killed"
    assert left_behind(run) == []


def test_planted_a_file_with_a_name_is_seen(model: Path, tmp_path: Path) -> None:
    run, _ = killed_in_decode(model, tmp_path / "run", NAMED)
    assert [path.parent for path in left_behind(run)] == [run.kv]


def test_a_run_that_ends_leaves_no_file_either(model: Path, tmp_path: Path) -> None:
    run = with_own_temporary(Scripted(model, tmp_path / "run", "One."))
    ended = run.run("hello")
    assert (ended.code, ended.out, ended.err) == (0, "One.\n", "")
    assert left_behind(run) == []
