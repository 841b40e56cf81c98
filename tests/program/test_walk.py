"""The walk and the README: their commands run, and command lines in the docs have only options that there are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli.app import build_app
from mlxchat.cli.routing import route
from mlxchat.engine.models import ModelFolder
from support.reference_page import page
from support.run_program import environment
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_LINE = re.compile(r"^    (?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S+ \S+ \| )?(mlxchat(?: .*)?)$", re.M)
_REMARK = re.compile(r"\s{2,}.*$")  # what stands beside a command, two spaces off


def command_lines(text: str) -> Iterator[str]:
    """The command lines of a page, without their remarks."""
    for found in _LINE.finditer(text):
        yield _REMARK.sub("", found[1]).strip()


def options_of(command: Any) -> set[str]:
    """Every option below a command."""
    names = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
    for inner in getattr(command, "commands", {}).values():
        names |= options_of(inner)
    return names


def unknown_options(line: str) -> list[str]:
    """The options of a command line that its command doesn't have."""
    program: Any = get_command(build_app())
    line = re.split(r" [|>]", line)[0]
    words = shlex.split(line.replace("…", "x"))[1:]
    if not words:
        return []
    routed = route(words, program.option_table())
    if routed[0].startswith("-"):
        return [word for word in routed if word not in options_of(program)]
    known = options_of(program.get_command(None, routed[0])) | {"--help", "-h"}
    given = [word.partition("=")[0] for word in routed[1:] if re.match(r"--?[a-z]", word)]
    return [word for word in given if word not in known and not re.fullmatch(r"-v+", word)]


@pytest.mark.plain
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_docs_name_only_options_that_there_are(path: Path) -> None:
    lines = list(command_lines(path.read_text(encoding="utf-8")))
    assert [(line, unknown) for line in lines if (unknown := unknown_options(line))] == []


@pytest.mark.plain
def test_an_option_that_there_is_none_of_would_be_found() -> None:
    assert unknown_options('mlxchat "question" --jsn') == ["--jsn"]
    assert unknown_options("mlxchat models list --temp 1") == ["--temp"]
    assert list(command_lines("    $ mlxchat -c      go on\n    git diff | mlxchat x\n")) == ["mlxchat -c", "mlxchat x"]


@pytest.mark.plain
def test_every_command_flag_and_slash_command_is_in_the_reference() -> None:
    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == page(), "run: python tests/support/reference_page.py > docs/reference.md"


def run_line(line: str, folder: Path, home: Path, piped: bytes = b"") -> None:
    """Run one command line of the docs; it must succeed and say something."""
    done = subprocess.run(
        [sys.executable, "-m", "mlxchat", *shlex.split(line)[1:]],
        cwd=folder,
        env=environment({"MLXCHAT_HOME": str(home)}),
        input=piped,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (line, done.stderr.decode())
    assert done.stdout or done.stderr, line


@pytest.mark.real
@pytest.mark.slow
def test_what_the_readme_says_it_does_it_does(tmp_path: Path, smollm2_folder: ModelFolder) -> None:
    """The lines of "What it does" that can run as they stand, with answers cut short."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "smollm2").symlink_to(smollm2_folder.path)
    (tmp_path / "notes.txt").write_text("The tide turns at six.")
    (tmp_path / "questions.txt").write_text("What is red?\nAnd blue?\n")
    shutil.copy(ROOT / "examples" / "agent-trace.jsonl", tmp_path / "trace.jsonl")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for line, more in (
        ('mlxchat "question"', "--max-tokens 5"),
        ('mlxchat "review this"', "--max-tokens 5"),
        ('mlxchat -f notes.txt "summarise"', "--max-tokens 5"),
        ("mlxchat --turns questions.txt --json", "--max-tokens 5"),
        ('mlxchat "question" --json', "--max-tokens 5"),
        ("mlxchat replay trace.jsonl", "--plan --template chatml-think"),
        ("mlxchat cache stat", ""),
        ("mlxchat doctor", ""),
        ("mlxchat models list", ""),
        ("mlxchat sessions list", ""),
        ("mlxchat config show", ""),
    ):
        assert line in text, "the README no longer says so"
        run_line(f"{line} {more}", tmp_path, home, b"a diff\n" if "review" in line else b"")


@pytest.mark.real
@pytest.mark.slow
def test_the_walk_can_be_walked(tmp_path: Path, smollm2_folder: ModelFolder) -> None:
    """Each command in its order, in a home of its own; the model is copied in place of its download."""
    home = tmp_path / "home"
    shutil.copytree(smollm2_folder.path, home / "models" / "smollm2")
    shutil.copy(ROOT / "LICENSE", tmp_path / "LICENSE")
    text = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    \$ (mlxchat .*)$", text, re.M)
    assert len(lines) > 15
    for line in lines:
        run_line(line, tmp_path, home)
    assert "Rate France" in (tmp_path / "chat.md").read_text(encoding="utf-8")
    assert not list((home / "sessions").glob("*.jsonl"))
    assert not (home / "models" / "smollm2").exists()
