"""`mlxchat models` and `doctor`: what they print, what they import, what they refuse."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from mlxchat.cli import model_commands
from mlxchat.cli.download_progress import DownloadProgress
from mlxchat.engine import download
from mlxchat.errors import DownloadError, ModelNotFound
from support.model_folders import edit_json, huggingface_snapshot, isolate, make_folder
from support.schemas import validate
from typer.testing import CliRunner

pytestmark = pytest.mark.plain


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return tmp_path


def invoke(*words: str) -> str:
    result = CliRunner().invoke(model_commands.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_list_names_what_could_be_fetched(home: Path) -> None:
    text = invoke("list")
    assert "smollm2" in text
    assert "93 MB" in text
    assert "mlxchat models pull gemma3-270m" in text
    report = json.loads(invoke("list", "--json"))
    assert report["schema"] == "mlxchat.models/1"
    assert report["models"] == []
    assert [m["name"] for m in report["available"]] == ["smollm2", "gemma3-270m"]


def test_list_shows_what_is_here_and_what_is_wrong_with_it(home: Path) -> None:
    good = make_folder(home / "good", "gemma3")
    bad = make_folder(home / "bad")
    edit_json(bad / "config.json", model_file="evil.py")
    huggingface_snapshot(home, "org/good", good)
    huggingface_snapshot(home, "org/bad", bad)
    entries = {m["name"]: m for m in json.loads(invoke("list", "--json"))["models"]}
    assert entries["org/good"]["kind"] == "gemma3_text"
    assert entries["org/good"]["weights"] == "bfloat16"
    assert entries["org/good"]["context_limit"] == 1024
    assert entries["org/good"]["problem"] == ""
    assert entries["org/good"]["fits"] is True
    assert "evil.py" in entries["org/bad"]["problem"]
    assert "org/good" in invoke("list")


def test_info(home: Path) -> None:
    folder = make_folder(home / "tiny")
    report = json.loads(invoke("info", str(folder), "--json"))
    assert report["schema"] == "mlxchat.model/1"
    assert report["kind"] == "llama"
    assert report["memory_bytes"] > report["disk_bytes"] > 0
    text = invoke("info", str(folder))
    assert "context:  512 tokens" in text
    with pytest.raises(ModelNotFound):
        invoke("info", "nothing")


def test_a_folder_name_cannot_move_the_cursor(home: Path) -> None:
    folder = make_folder(home / "a\x1b[2Jb")
    assert "\x1b" not in invoke("info", str(folder))


def test_pull_refuses_off_a_terminal_without_yes(home: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        invoke("pull", "smollm2")
    assert caught.value.hint == "mlxchat models pull smollm2 --yes"
    with pytest.raises(DownloadError, match="--offline"):
        invoke("pull", "smollm2", "--yes", "--offline")


def test_pull_with_yes_says_size_and_terms_on_stderr(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_check_space", lambda model: (home / "mlxchat" / "models").mkdir(parents=True))
    monkeypatch.setattr(download, "_make", lambda model, progress: progress("converting", 0, 0))
    result = CliRunner().invoke(model_commands.app, ["pull", "gemma3-270m", "--yes"], catch_exceptions=False)
    assert "Gemma Terms of Use" in result.stderr
    assert "238 MB" in result.stderr
    assert "converting" in result.stderr
    assert result.stdout.startswith("gemma3-270m is in ")


IMPORTS = """
import sys
import mlxchat.cli.model_commands, mlxchat.cli.doctor, mlxchat.cli.download_progress
from typer.testing import CliRunner
{run}
heavy = {{'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy'}}
print(sorted({{m.split('.')[0] for m in sys.modules}} & heavy))
"""


@pytest.mark.parametrize(
    "run", ["", "CliRunner().invoke(mlxchat.cli.model_commands.app, ['list'])"], ids=["import", "list"]
)
def test_nothing_heavy_is_imported(run: str, home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(run=run)], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "[]\n"


DOCTOR = "import typer; from mlxchat.cli.doctor import doctor; typer.run(doctor)"


def run_doctor(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", DOCTOR, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
        check=False,
    )


def test_doctor_names_backend_versions_and_folders(home: Path) -> None:
    done = run_doctor()
    assert done.returncode == 0, done.stderr
    for word in ("machine", "backend", "GFLOP/s", "mlx-lm", "models", "GB free"):
        assert word in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="Metal needs no BLAS")
def test_doctor_in_json(home: Path) -> None:
    done = run_doctor("--json", MLXCHAT_BLAS="off")
    report = validate(json.loads(done.stdout))
    assert report["schema"] == "mlxchat.doctor/1"
    assert report["works"] is True
    assert "MLXCHAT_BLAS=off" in report["backend"]


def test_progress_off_a_terminal_is_one_line_a_step() -> None:
    out = StringIO()
    with DownloadProgress(out) as progress:
        for done in range(5):
            progress("downloading x", done, 4)
        progress("converting x", 0, 0)
    assert out.getvalue() == "downloading x …\nconverting x …\n"


def test_progress_on_a_terminal_counts_in_place() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, DownloadProgress(terminal) as progress:
        progress("downloading x", 50_000_000, 100_000_000)
        progress("downloading x", 100_000_000, 100_000_000)
    text = ""
    with suppress(OSError):  # how some systems end a terminal that nobody writes to any more
        while chunk := os.read(leader, 4096):
            text += chunk.decode()
    os.close(leader)
    assert "50 of 100 MB (50 %)" in text
    assert "(100 %)" in text
    assert text.endswith("\r\n")
    assert text.count("\n") == 1
