"""The set-up script on machines it can't work on, played by stand-ins on PATH; and the make targets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exact

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "dirname", "cat", "cut", "find", "sort", "cksum", "rm", "printf")


class Machine:
    """A clone with the packaging files only, and a PATH of stand-ins."""

    def __init__(self, root: Path) -> None:
        self.clone = root / "a clone"
        self.bin = root / "bin"
        self.bin.mkdir()
        (self.clone / ".ci").mkdir(parents=True)
        for name in ("pyproject.toml", "constraints.txt", ".ci/setup.sh"):
            shutil.copy(ROOT / name, self.clone / name)
        for name in ("cli", "engine", "cache", "transcripts"):
            (self.clone / name).mkdir()
            (self.clone / name / "__init__.py").write_text("")
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)

    def add(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def uname(self, system: str, machine: str) -> None:
        self.add("uname", f'[ "$1" = -s ] && echo {system} || echo {machine}')

    def python(self, name: str, version: str, machine: str = "x86_64", new_enough: bool = True) -> None:
        """An interpreter that reports itself, and whose venv is a folder with itself in it."""
        self.add(
            name,
            f"""case "$*" in
*platform*) echo {version} {machine} {new_enough} ;;
*"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*"pip install"*) echo "pip $*"; echo noise ;;
*) exit 0 ;;
esac""",
        )
        for tool in ("mkdir", "cp"):
            if not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def run(self, what: str = "run") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "sh"), str(self.clone / ".ci" / "setup.sh"), what],
            capture_output=True,
            text=True,
            env={"PATH": str(self.bin), "HOME": str(self.clone)},
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(done: subprocess.CompletedProcess[str], cause: str, mend: str) -> None:
    assert done.returncode == 69, done.stderr
    error, help_line = done.stderr.strip().splitlines()[-2:]
    assert cause in error
    assert mend in help_line
    assert done.stdout == ""


def test_a_python_that_is_too_old(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.add("apt-get", "exit 0")
    machine.python("python3", "3.9", new_enough=False)
    refused(machine.run(), "python3 is 3.9", "sudo apt-get install python3.11 python3.11-venv")


def test_no_python_at_all(machine: Machine) -> None:
    machine.uname("Darwin", "arm64")
    machine.add("sysctl", "echo 1")
    refused(machine.run(), "no python3", "brew install python@3.13")


def test_a_newer_python_beside_an_old_one_is_taken(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.9", new_enough=False)
    machine.python("python3.12", "3.12")
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert "making .venv with python3.12" in done.stderr


def test_a_python_under_rosetta(machine: Machine) -> None:
    machine.uname("Darwin", "x86_64")
    machine.add("sysctl", "echo 1")
    machine.python("python3", "3.12", machine="x86_64")
    refused(machine.run(), "Rosetta", "arch -arm64 brew install")


def test_an_intel_mac(machine: Machine) -> None:
    machine.uname("Darwin", "x86_64")
    machine.add("sysctl", "exit 1")
    machine.python("python3", "3.12", machine="x86_64")
    refused(machine.run(), "Intel", "Apple silicon")


def test_an_old_macos(machine: Machine) -> None:
    machine.uname("Darwin", "arm64")
    machine.add("sysctl", "echo 1")
    machine.add("sw_vers", "echo 13.6")
    machine.python("python3", "3.12", machine="arm64")
    refused(machine.run(), "macOS 14", "softwareupdate")


@pytest.mark.parametrize(("system", "arch"), [("Linux", "armv7l"), ("FreeBSD", "amd64")])
def test_another_machine(system: str, arch: str, machine: Machine) -> None:
    machine.uname(system, arch)
    machine.python("python3", "3.12")
    refused(machine.run(), arch if system == "Linux" else system, "")


def test_it_installs_once_and_again_when_what_it_depends_on_changes(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.12")

    def installs(what: str = "run") -> bool:
        done = machine.run(what)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return "pip " in done.stderr

    assert installs()
    assert not installs()
    assert installs("dev")
    (machine.clone / "engine" / "new.py").write_text("")
    assert installs()
    assert not installs()
    with (machine.clone / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    assert installs()
    shutil.rmtree(machine.clone / ".venv")
    assert installs()


def test_a_moved_clone_gets_a_new_environment(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.12")
    assert "making .venv" in machine.run().stderr
    (machine.clone / "engine" / "new.py").write_text("")
    assert "making .venv" not in machine.run().stderr
    moved = machine.clone.with_name("moved")
    machine.clone.rename(moved)
    machine.clone = moved
    assert "making .venv" in machine.run().stderr
    assert machine.run().stderr == ""


def test_pip_failing_is_said_and_tried_again(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.12")
    script = (machine.bin / "python3").read_text().replace('echo "pip $*"; echo noise', "exit 1")
    (machine.bin / "python3").write_text(script)
    refused(machine.run(), "pip could not install", "make clean")
    refused(machine.run(), "pip could not install", "make clean")


def test_a_broken_uv_falls_back_to_venv_and_pip(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.12")
    machine.add("uv", "exit 1")
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert "uv failed" in done.stderr


def test_uv_is_used_when_it_is_there(machine: Machine) -> None:
    machine.uname("Linux", "x86_64")
    machine.python("python3", "3.12")
    copy = 'mkdir -p .venv/bin; cp "$(command -v python3)" .venv/bin/python'
    machine.add("uv", f'echo "uv $*"; if [ "$1" = venv ]; then {copy}; fi')
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert "uv venv" in done.stderr
    assert "uv pip install" in done.stderr
    assert "-c constraints.txt -e ." in done.stderr


def dry_make(*words: str, **variables: str) -> str:
    make = shutil.which("make")
    assert make
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [make, "-n", *words, *(f"{k}={v}" for k, v in variables.items())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return done.stdout


def test_make_chat_passes_words_as_they_are() -> None:
    lines = dry_make("chat", ARGS='"What is $5?" --temp 0 --json').splitlines()
    assert lines[-1] == 'exec .venv/bin/mlxchat "What is $5?" --temp 0 --json'
    assert lines[-2] == ".venv/bin/mlxchat models pull smollm2 --yes 1>&2"


def test_make_test_runs_the_two_processes() -> None:
    assert dry_make("test").splitlines()[-1].endswith(" .ci/tests.sh")
    assert dry_make("test-slow").splitlines()[-1].endswith(" .ci/tests.sh slow")
    lines = [line for line in (ROOT / ".ci" / "tests.sh").read_text().splitlines() if "pytest" in line]
    assert len(lines) == 2
    assert lines[0].startswith("MLXCHAT_BLAS=off ")
    assert '-m "(exact or library) and $which"' in lines[0]
    assert "MLXCHAT_BLAS" not in lines[1]
    assert '-m "(real or plain and not library) and $which"' in lines[1]


def test_ci_calls_make_test_and_nothing_else() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "exec make test"
    assert len(commands) == 3


def test_the_constraints_pin_every_dependency_within_its_range() -> None:
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(
        line.lower().replace("_", "-").split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert project["requires-python"] == ">=3.11"
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[requirement.name.lower()]), text


def test_this_process_runs_what_the_constraints_say() -> None:
    from importlib.metadata import version

    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    for name in ("mlx", "mlx-lm", "mlx-vlm", "transformers", "tokenizers"):
        assert version(name) == pins[name], f"{sys.prefix} was not installed with constraints.txt"
