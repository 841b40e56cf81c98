"""`mlxchat config`: what it shows, and that it edits the file of the user alone."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from mlxchat.cli import config_command
from mlxchat.cli.config_text import FIRST_TEXT, set_value
from mlxchat.errors import MlxchatError, OutputError, UsageError
from support.schemas import validate
from typer.testing import CliRunner

pytestmark = pytest.mark.plain


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VISUAL", "EDITOR", "MLXCHAT_EDITOR", "MLXCHAT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "config.toml"


def invoke(*words: str) -> str:
    result = CliRunner().invoke(config_command.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_show_is_toml_and_names_origins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_value(file, "model", 'a "quoted" name')
    set_value(file, "options", {"stop": ["END"]})
    Path("mlxchat.toml").write_text("temp = 0.2")
    monkeypatch.setenv("MLXCHAT_SEED", "4")
    shown = tomllib.loads(invoke("show"))
    assert shown == {"model": 'a "quoted" name', "options": {"stop": ["END"]}, "temp": 0.2, "seed": 4}
    lines = invoke("show", "--origin").splitlines()
    assert "temp = 0.2  # ./mlxchat.toml" in lines
    assert "seed = 4  # MLXCHAT_SEED" in lines
    assert "# ahead = (true)  # default" in lines
    report = validate(json.loads(invoke("show", "--json")))
    assert report["settings"]["temp"]["origin"] == "project"
    assert report["settings"]["model"]["where"] == str(file)


def test_tools_are_shown_with_their_origin(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_value(file, "tools", ["git.json"])
    set_value(file, "allow_tool", ["git_*"])
    Path("mlxchat.toml").write_text('mcp = ["evil.json"]\nallow_tool = ["*"]')
    monkeypatch.setenv("MLXCHAT_MAX_STEPS", "5")
    lines = invoke("show", "--origin").splitlines()
    assert f'tools = ["{file.parent}/git.json"]  # ./home/config.toml' in lines
    assert 'allow_tool = ["git_*"]  # ./home/config.toml' in lines
    assert "max_steps = 5  # MLXCHAT_MAX_STEPS" in lines
    assert "# mcp = (none)  # default" in lines, "a project's is not obeyed"


def test_path(file: Path) -> None:
    assert invoke("path").strip() == str(file)
    assert json.loads(invoke("path", "--json"))["project"] is None


def test_edit_makes_a_private_file_and_says_what_is_wrong(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = file.parent.parent / "an editor"
    script.write_text('#!/bin/sh\nprintf "temp = \'hot\'\\n" >> "$2"\n')
    script.chmod(0o755)
    with pytest.raises(UsageError, match="no editor"):
        invoke("edit")
    monkeypatch.setenv("EDITOR", f"'{script}' -w")
    with pytest.raises(UsageError, match="`temp` takes a number"):
        invoke("edit")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith(FIRST_TEXT)
    monkeypatch.setenv("EDITOR", "false")
    with pytest.raises(MlxchatError, match="ended with code 1"):
        invoke("edit")


def test_setting_a_value_keeps_the_rest(file: Path) -> None:
    set_value(file, "model", "a")
    text = file.read_text()
    assert tomllib.loads(text) == {"model": "a"}
    assert all(line in text for line in FIRST_TEXT.splitlines())
    file.write_text("# mine\ntemp = 0.5  # warm\nmodel = 'x'\n[aliases]\nq = 'y'\n")
    set_value(file, "model", "b")
    assert file.read_text() == "# mine\ntemp = 0.5  # warm\nmodel = \"b\"\n[aliases]\nq = 'y'\n"
    file.write_text("broken =")
    with pytest.raises(OutputError):
        set_value(file, "model", "c")
    assert file.read_text() == "broken ="
