"""The commands of the prompt in a real terminal: one long session each, for what needs keys, files and a screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.run_program import PROGRAM, environment
from support.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, Terminal

pytestmark = pytest.mark.plain


def opened(home: Path, *arguments: str) -> Terminal:
    return Terminal([str(PROGRAM), *arguments], {**environment(), "MLXCHAT_HOME": str(home)})


def test_branches_settings_and_lines_of_several(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with opened(home) as terminal:
        terminal.wait_for_prompt()
        terminal.line("say one")
        terminal.wait_for(r"ctx 12 %\n>$")
        terminal.line("say two")
        terminal.wait_for(r"two\nprompt[^>]*\n>$")
        terminal.line("/edit 2")
        terminal.wait_for_prompt("say one")
        terminal.send(CTRL_C)
        terminal.wait_for_prompt()
        terminal.line("/redo")
        terminal.wait_for("back: behind message 4, “two”")
        terminal.line("/edit")
        terminal.wait_for_prompt("say two")
        terminal.send(f" more{ENTER}")
        terminal.wait_for(r"two more\nprompt[^>]*\n>$")
        terminal.line("/tree")
        terminal.wait_for(r"\* 1  you: say one\n\* 2  model: one\n  3    you: say two\n  4    model: two\n\* 5  you:")
        terminal.line("/tree 4")
        terminal.wait_for("went there, /redo goes back: behind message 4")
        terminal.line("/multiline")
        terminal.wait_for("Alt-Enter sends")
        terminal.send(f"say three{ENTER}lines")
        terminal.wait_for(r"> say three\n… lines")
        terminal.send(ALT_ENTER)
        terminal.wait_for(r"(?m)^three\nlines\nprompt[^>]*\n>$")
        terminal.line("/multiline")  # Enter ends a command even so
        terminal.wait_for("Enter sends, Alt-Enter begins a new line")
        terminal.line("/set temp 3")
        terminal.wait_for(r"temp          3\.0\n>$")
        terminal.line("/model slow")
        terminal.line("say early")
        terminal.wait_for("loading slow …")
        terminal.wait_for(r"(?m)^early\nprompt[^>]*\n>$")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
    with opened(home, "-c") as again:
        again.wait_for_prompt()
        again.line("/set temp")
        again.wait_for(r"temp          3\.0\n>$")
        again.line("/model")
        again.wait_for("slow; /model NAME goes on with another")
        again.line("/tree")
        again.wait_for(r"\* 10  model: early  ← here")


def test_a_private_chat_leaves_no_word_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with opened(home) as terminal:
        terminal.wait_for_prompt()
        terminal.line("say open")
        terminal.wait_for(r"ctx 12 %\n>$")
        terminal.line("/private")
        terminal.wait_for("of which nothing is saved")
        terminal.line("say secret")
        terminal.wait_for(r"secret\nprompt[^>]*\n>$")
        terminal.line("/new")
        terminal.wait_for(r"a new chat\n>$")
        terminal.line("say again")
        terminal.wait_for(r"again\nprompt[^>]*\n>$")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
    words = "".join(path.read_text(encoding="utf-8") for path in home.rglob("*") if path.is_file())
    assert "say open" in words
    assert "say again" in words
    assert "secret" not in words


def test_begun_without_saving_nothing_typed_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with opened(home, "--no-save") as terminal:
        terminal.wait_for_prompt()
        terminal.line("say secret")
        terminal.wait_for(r"ctx 12 %\n>$")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
    assert "secret" not in "".join(path.read_text(encoding="utf-8") for path in home.rglob("*") if path.is_file())
