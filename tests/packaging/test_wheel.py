"""The wheel and the sdist: what is in them, and that the wheel runs from an environment and a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from mlxchat.engine.models import ModelFolder

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel made from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def program(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mlxchat` in a new environment: the wheel is its own, the dependencies are this environment's."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=False, symlinks=True)
    (wheel,) = built.glob("*.whl")
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "mlxchat"


def run(program: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MLXCHAT_BLAS")}
    return subprocess.run(
        [str(program), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_wheel_carries_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"mlxchat/__init__.py", "mlxchat/py.typed", "mlxchat/engine/loader.py", "mlxchat/cli/main.py"} <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mlxchat"}
    rooms = {name.split("/")[1] for name in names if name.startswith("mlxchat/") and name.count("/") > 1}
    assert rooms == {"cli", "engine", "cache", "transcripts"}


def test_every_module_and_data_file_is_in_the_wheel(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for room in ("cli", "engine", "cache", "transcripts"):
        for file in (ROOT / room).rglob("*"):
            if file.suffix in (".py", ".json", ".jinja"):
                assert f"mlxchat/{file.relative_to(ROOT).as_posix()}" in names


def test_the_sdist_can_be_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "errors.py", "cli/main.py"} <= names


def test_the_installed_wheel_runs_from_another_folder(program: Path, tmp_path: Path) -> None:
    where = [str(program.parent / "python"), "-c", "import mlxchat; print(mlxchat.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert str(program.parent.parent) in found.stdout
    assert run(program, "--version", folder=tmp_path).returncode == 0
    help_text = run(program, "--help", folder=tmp_path)
    assert help_text.returncode == 0
    assert "models" in help_text.stdout
    listed = run(program, "models", "list", "--json", folder=tmp_path)
    assert json.loads(listed.stdout)["schema"] == "mlxchat.models/1"


def test_the_installed_wheel_chats(program: Path, tmp_path: Path, smollm2_folder: ModelFolder) -> None:
    words = ("What is the capital of France? One word.", "--temp", "0", "--max-tokens", "12", "--json")
    done = run(program, *words, "-m", "smollm2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Paris" in json.loads(done.stdout)["text"]
