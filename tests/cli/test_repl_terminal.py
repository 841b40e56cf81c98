"""The conversation in a real terminal: keys, screen, history file."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.errors import ModelIncomplete
from support.picture_files import png_file
from support.run_program import PROGRAM, environment
from support.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, ENTER, UP, Terminal

pytestmark = pytest.mark.plain


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path, *arguments: str, **more: str) -> Terminal:
    return Terminal([str(PROGRAM), *arguments], {**environment(), "MLXCHAT_HOME": str(home), **more})


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    with opened(home) as terminal:
        terminal.wait_for_prompt()
        yield terminal


def test_a_conversation(terminal: Terminal) -> None:
    assert "fake · context 2,048 tokens · /help" in terminal.text
    terminal.line("think hello")
    terminal.wait_for(r"thought 2 tokens, \d\.\d s\n\nhello\nprompt 4,210 \(4,096 cached, 114 new\).*ctx 12 %\n>$")
    assert "\x1b[2mthought" in terminal.raw, "it is dim"
    terminal.line("/exit")
    assert terminal.wait_for_exit() == 0


def test_ctrl_d_leaves(terminal: Terminal) -> None:
    terminal.send(CTRL_D)
    assert terminal.wait_for_exit() == 0


def test_ctrl_c_keeps_the_partial_answer_and_the_program(terminal: Terminal) -> None:
    terminal.line("hang so far")
    terminal.wait_for("hanging", after="so far")
    terminal.send(CTRL_C)
    terminal.wait_for(r"what was said is kept\)\n>$")
    terminal.line("say more")
    terminal.wait_for(r"(?m)^more$")


def test_keys_pressed_meanwhile_are_not_in_the_answer(terminal: Terminal) -> None:
    terminal.line("hang so far")
    terminal.wait_for("hanging", after="so far")
    terminal.send("typed ahead")
    terminal.send(CTRL_C)
    terminal.wait_for(r"what was said is kept\)\n> typed ahead$")
    assert terminal.raw.index("what was said is kept") < terminal.raw.index("typed")
    assert "^C" not in terminal.raw


def test_ctrl_d_pressed_meanwhile_leaves_at_the_next_prompt(terminal: Terminal) -> None:
    terminal.line("hang so far")
    terminal.wait_for("hanging", after="so far")
    terminal.send(CTRL_D)
    terminal.send(CTRL_C)
    assert terminal.wait_for_exit() == 0
    assert "what was said is kept" in terminal.text


def test_keys_are_shown_again_by_whoever_comes_after(home: Path) -> None:
    script = f"{shlex.quote(sys.executable)} {shlex.quote(str(PROGRAM))}; stty -a"
    with Terminal(["-c", script], {**environment(), "MLXCHAT_HOME": str(home)}, program="/bin/sh") as terminal:
        terminal.wait_for_prompt()
        terminal.send(CTRL_D)
        terminal.wait_for(r"\becho\b")
        assert not re.search(r"-echo\b", terminal.text)


def test_ctrl_c_before_a_word_gives_the_message_back(terminal: Terminal) -> None:
    terminal.line("hang silently")
    terminal.wait_for("hanging", after="silently")
    terminal.send(CTRL_C)
    terminal.wait_for("before a word was said")
    terminal.wait_for_prompt("hang silently")


def test_a_signal_stops_as_the_key_does(terminal: Terminal) -> None:
    terminal.line("hang so far")
    terminal.wait_for("hanging", after="so far")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for(r"what was said is kept\)\n>$")


def test_ctrl_c_at_the_prompt(terminal: Terminal) -> None:
    terminal.send("half a line")
    terminal.wait_for_prompt("half a line")
    terminal.send(CTRL_C)
    terminal.wait_for_prompt()
    terminal.send(CTRL_C)
    terminal.wait_for(r"Ctrl-C once more, or Ctrl-D, to leave\)\n>$")
    terminal.send(CTRL_C)
    assert terminal.wait_for_exit() == 0


@pytest.mark.parametrize("newline", [ALT_ENTER, CTRL_J, f"\\{ENTER}"])
def test_several_lines(terminal: Terminal, newline: str) -> None:
    terminal.send("say one")
    terminal.send(newline)
    terminal.send("two")
    terminal.wait_for(r"> say one\n… two")
    terminal.send(ENTER)
    terminal.wait_for(r"(?m)^one\ntwo\nprompt")


def test_a_block(terminal: Terminal) -> None:
    terminal.line('"""')
    terminal.line("say /exit")
    terminal.line("two")
    terminal.line('"""')
    terminal.wait_for(r"(?m)^/exit\ntwo\nprompt")


def test_a_paste_is_one_message(terminal: Terminal) -> None:
    terminal.send("\x1b[200~say one\ntwo\x1b[201~")
    terminal.wait_for(r"> say one\n… two")
    terminal.send(ENTER)
    terminal.wait_for(r"(?m)^one\ntwo\nprompt")


def test_undo_offers_the_message(terminal: Terminal) -> None:
    terminal.line("say one")
    terminal.wait_for(r"ctx 12 %\n>$")
    terminal.line("/undo")
    terminal.wait_for_prompt("say one")


def test_a_failed_turn_offers_the_message(terminal: Terminal) -> None:
    terminal.line("too long")
    terminal.wait_for(r"mlxchat: the prompt has 9,999 tokens.*\nmake it shorter")
    terminal.wait_for_prompt("too long")


def test_an_unknown_command_is_not_sent(terminal: Terminal) -> None:
    terminal.line("/sats")
    terminal.wait_for(r"did you mean /stats\?")
    terminal.wait_for_prompt("/sats")
    assert "You said" not in terminal.text


def test_history_is_kept_for_its_owner_only(home: Path) -> None:
    with opened(home) as first:
        first.wait_for_prompt()
        first.line("say remembered")
        first.wait_for(r"ctx 12 %\n>$")
        first.send(CTRL_D)
        first.wait_for_exit()
    files = [path for path in home.rglob("*") if path.is_file()]
    found = {path.suffix for path in files if "say remembered" in path.read_text(encoding="utf-8")}
    assert found == {"", ".jsonl"}, "the history and the session"
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    with opened(home) as second:
        second.wait_for_prompt()
        second.send(UP)
        second.wait_for_prompt("say remembered")


def test_a_home_that_cannot_be_written_costs_only_history(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with opened(tmp_path / "file") as terminal:
        terminal.wait_for_prompt()
        terminal.line("say still here")
        terminal.wait_for(r"(?m)^still here$")


def test_escape_sequences_of_the_model_do_nothing(terminal: Terminal) -> None:
    terminal.line("erase nothing")
    terminal.wait_for(r"(?m)^nothing!\nprompt")
    assert "erase nothing" in terminal.text
    assert "\x1b]0;" not in terminal.raw


def test_no_colour_when_told(home: Path) -> None:
    with opened(home, NO_COLOR="1") as terminal:
        terminal.wait_for_prompt()
        terminal.line("think plainly")
        terminal.wait_for(r"ctx 12 %\n>$")
        assert not re.search(r"\x1b\[[\d;]*[349]\d[\d;]*m", terminal.raw)
        assert "\x1b[2m" in terminal.raw, "dim is no colour"


def test_quiet(home: Path) -> None:
    with opened(home, "-q") as terminal:
        terminal.wait_for_prompt()
        terminal.line("think hello")
        terminal.wait_for(r"> think hello\nhello\n>$")


def test_json_and_redirected_output_are_no_conversation(home: Path) -> None:
    with opened(home, "--json") as terminal:
        assert terminal.wait_for_exit() == 2
        assert "JSON output needs a prompt" in terminal.text
    pipe = f"{shlex.join([sys.executable, str(PROGRAM)])} | cat"
    with Terminal(["-c", pipe], environment(), program="/bin/sh") as terminal:
        terminal.wait_for("there is no prompt, and stdout is no terminal")


def test_enter_pressed_meanwhile_sends_what_was_typed(terminal: Terminal) -> None:
    terminal.line("hang so far")
    terminal.wait_for("hanging", after="so far")
    terminal.send(f"say early{ENTER}say later")
    terminal.send(CTRL_C)
    terminal.wait_for(r"(?m)^early\nprompt")
    terminal.wait_for_prompt("say later")
    terminal.send(ENTER)
    terminal.wait_for(r"(?m)^later\nprompt")


@pytest.mark.parametrize(
    ("how", "begins"), [("kitty", "\x1b_Ga=T"), ("iterm2", "\x1b]1337;File="), ("sixel", '\x1bP0;0;0q"1;1;')]
)
def test_a_picture_is_shown_where_it_is_staged(home: Path, tmp_path: Path, how: str, begins: str) -> None:
    path = png_file(tmp_path / "a.png")
    with opened(home, "-m", "seeing", "-i", str(path), MLXCHAT_PICTURES=how) as terminal:
        terminal.wait_for(rf"{path} \(4 × 2\) goes with your first message")
        assert terminal.raw.count(begins) == 1
        terminal.line("say seen")  # also while there is no prompt yet
        terminal.wait_for(r"(?m)^seen$")
        terminal.line(f"/image {path}")
        terminal.wait_for("goes with your next message")
        assert terminal.raw.count(begins) == 2
        terminal.line("/detach")
        terminal.wait_for(rf"{path} stays here")
        terminal.line("/exit")
        assert terminal.wait_for_exit() == 0


def test_no_picture_where_the_terminal_is_not_known(home: Path, tmp_path: Path) -> None:
    path = png_file(tmp_path / "a.png")
    with opened(home, "-m", "seeing", "-i", str(path), MLXCHAT_PICTURES="", TMUX="") as terminal:
        terminal.wait_for("goes with your first message")
        terminal.line("/image absent.png")
        terminal.wait_for("can't read absent.png")
        terminal.wait_for_prompt("/image absent.png")
        assert not re.search(r"\x1b[_P]|\x1b\]1337", terminal.raw)


def test_tab_completes_commands_and_the_paths_after_them(home: Path, tmp_path: Path) -> None:
    png_file(tmp_path / "only-one.png")
    with opened(home, "-m", "seeing") as terminal:
        terminal.wait_for_prompt()
        terminal.send("/im\t")
        terminal.wait_for_prompt("/image")
        terminal.send(f" {tmp_path}/on\t")
        terminal.wait_for_prompt(f"/image {tmp_path}/only-one.png")


def test_the_first_message_can_be_typed_while_the_model_loads(home: Path) -> None:
    with opened(home, "-m", "slow") as terminal:
        terminal.wait_for_prompt()
        terminal.send("say early")
        terminal.wait_for_prompt("say early")
        terminal.send(ENTER)
        terminal.wait_for("loading fake …")
        terminal.wait_for(r"(?m)^early$")


def test_what_the_model_has_to_say_comes_above_the_prompt(home: Path) -> None:
    with opened(home, "-m", "loud") as terminal:
        terminal.wait_for("the fake engine is loud")
        terminal.line("say something")
        terminal.wait_for(r"(?m)^something$")


def test_ctrl_c_while_it_loads_gives_the_message_back(home: Path) -> None:
    with opened(home, "-m", "slow") as terminal:
        terminal.wait_for_prompt()
        terminal.line("say early")
        terminal.wait_for("loading fake …")
        terminal.send(CTRL_C)
        terminal.wait_for_prompt("say early")


def test_a_model_that_cannot_be_loaded_ends_the_chat_and_keeps_what_was_typed(home: Path) -> None:
    with opened(home, "-m", "broken") as terminal:
        terminal.wait_for_prompt()
        terminal.send("words that took long")
        assert terminal.wait_for_exit() == ModelIncomplete.exit_code
        assert "the fake engine is broken" in terminal.text
    with opened(home) as second:
        second.wait_for_prompt()
        second.send(UP)
        second.wait_for_prompt("words that took long")
