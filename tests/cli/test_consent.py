"""The question whether a call may run: what it shows, and which keys answer it."""

from __future__ import annotations

import io
import os
import pty
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from mlxchat.cli import key_press as module
from mlxchat.cli.consent import TerminalConsent
from mlxchat.cli.key_press import key_presses
from mlxchat.cli.streams import Streams
from mlxchat.cli.tool_lines import argument_lines, call_line, result_line, visible
from mlxchat.engine.messages import ToolCall
from mlxchat.engine.tools.approvals import Question
from mlxchat.engine.tools.command import Command
from mlxchat.engine.tools.tool import Tool, ToolResult

pytestmark = pytest.mark.plain

PROPERTIES = {"type": "object", "properties": {"path": {"type": "string"}}}


def question(runner: Any = None, **arguments: Any) -> Question:
    return Question(Tool("remove", {"name": "remove"}, "tools.json", "id", runner), ToolCall("1", "remove", arguments))


def asked(keys: str, wanted: Question, verbosity: int = 0) -> tuple[str, str]:
    """The answer that `keys` give, and what stood on stderr."""
    left, err = iter(keys), io.StringIO()
    streams = Streams("never", verbosity, stdout=io.StringIO(), stderr=err)
    answer = TerminalConsent(streams, lambda: False, lambda stopped: nullcontext(lambda: next(left)))(wanted)
    return answer, err.getvalue()


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("o", "once"),
        ("Y", "once"),
        ("a", "always"),
        ("d", "deny"),
        ("n", "deny"),
        ("\x1b", "deny"),
        ("\x03", "stop"),
        ("\x04", "stop"),
        ("\r\n xo", "once"),
        ("\0\rd", "deny"),
    ],
)
def test_keys(keys: str, answer: str) -> None:
    assert asked(keys, question(path="/tmp/x"))[0] == answer


def test_the_whole_call_is_shown_also_when_quiet() -> None:
    long = "x" * 5000
    for verbosity in (0, -1):
        _, shown = asked(
            "d", question(Command(("rm", "--", "{path}"), PROPERTIES, "argv"), path=f"/a b/{long}"), verbosity
        )
        assert shown.startswith(f"remove, from tools.json, wants to run:\n  rm -- '/a b/{long}'\n  {{\n")
        assert f'"path": "/a b/{long}"' in shown
        assert shown.endswith("[o]nce, [a]lways for this tool, [d]eny? deny\n")


def test_nothing_in_it_is_invisible_or_moves_the_cursor() -> None:
    hidden = "a\u202eb\u200bc\x1b[2Jd\re\nf\u2028g\u00a0h"
    _, shown = asked("d", question(Command(("rm", "{path}"), PROPERTIES, "argv"), path=hidden))
    assert all(char.isprintable() or char == "\n" for char in shown)
    for escape in (r"\u202e", r"\u200b", r"\u001b", r"\r", r"\n", r"\u2028", r"\u00a0"):
        assert escape in shown
    assert visible("é日🙂") == "é日🙂"
    blank = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef"
    assert visible(f"rm{blank}x").isascii()


@pytest.mark.parametrize(
    "text",
    ["❤️", "❤︎", "a ☕️ b", "⚠️.txt", "👨‍👩‍👧", "🏳️‍🌈", "🏴‍☠️", "👩🏽‍💻", "👁️‍🗨️", "1️⃣", "#️⃣", "©️", "🙂", "é日"],
)
def test_an_emoji_stays_whole(text: str) -> None:
    assert visible(text) == text
    assert argument_lines({"path": text})[1] == f'  "path": "{text}"'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\ufe0f", r"\ufe0f"),
        ("rm\ufe0f", r"rm\ufe0f"),
        ("a\ufe0e", r"a\ufe0e"),
        ("日\ufe0f", r"日\ufe0f"),
        ("1\ufe0f", r"1\ufe0f"),
        ("a\ufe0f\u20e3", "a\\ufe0f\u20e3"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\ufe0f"),
        ("❤ \ufe0f", r"❤ \ufe0f"),
        ("❤\ufe00", r"❤\ufe00"),
        ("❤\u200b", r"❤\u200b"),
        ("a\u200db", r"a\u200db"),
        ("❤\u200d", r"❤\u200d"),
        ("❤\u200da", r"❤\u200da"),
        ("a\u200d❤", r"a\u200d❤"),
        ("❤\u200d\u200d❤", r"❤\u200d\u200d❤"),
        ("🏴\U000e0067\U000e007f", r"🏴\U000e0067\U000e007f"),
        ("❤\u202e", r"❤\u202e"),
        ("\u2800\ufe0f", r"\u2800\ufe0f"),
        ("\U0001faff", r"\U0001faff"),
    ],
)
def test_what_hides_beside_an_emoji_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_where_it_comes_from_is_not_turned_round_either() -> None:
    tool = replace(question(None).tool, origin="nosj.sloot\u202e from tools.json")
    _, shown = asked("d", replace(question(None), tool=tool))
    assert r"nosj.sloot\u202e from" in shown


def test_lines_about_calls_and_results() -> None:
    assert call_line("f", {"x": "é\u202e"}) == r'f {"x": "é\u202e"}'
    assert call_line("f", {"x": "y" * 100}).endswith("…")
    assert result_line("f", ToolResult("ran", "\none\ntwo\n")) == "f → one (and 1 more lines)"
    assert result_line("f", ToolResult("ran", "")) == "f → no output"
    assert result_line("f", ToolResult("timed_out", "slow")) == "f → timed out: slow"
    assert result_line("f", ToolResult("denied", "denied: no")) == "f → denied: no"


# -- keys of a real terminal -------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(the person's end, the program's end)."""
    person, program = pty.openpty()
    yield person, program
    os.close(person)
    os.close(program)


def pressed(terminal: tuple[int, int], keys: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bytes]:
    """What is read when `keys` are pressed once the question stands, after `typed ahead`; and what was kept."""
    person, program = terminal
    kept: list[bytes] = []
    os.write(person, b"typed a\n")  # the terminal still gathers lines

    def keep(typed: bytes) -> None:
        kept.append(typed)
        os.write(person, keys)

    monkeypatch.setattr(module, "keep_for_the_prompt", keep)
    with key_presses(lambda: False, program) as next_key:
        return next_key(), kept[0]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (b"o", "o"),
        (b"oo", "o"),
        (b"\r", "\r"),
        (b"\x1b", "\x1b"),
        (b"\x1b[A", "\0"),
        (b"\rd", "d"),
        (b"a\n", "\0"),
        (b"always", "\0"),
        ("é".encode(), "\0"),
        (b"\x03", "\x03"),
        (b"x\x03", "\x03"),
    ],
)
def test_only_keys_pressed_at_the_question_count(
    terminal: tuple[int, int], keys: bytes, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = termios.tcgetattr(terminal[1])
    found, kept = pressed(terminal, keys, monkeypatch)
    assert found == key
    assert kept.strip() == b"typed a"
    assert termios.tcgetattr(terminal[1]) == before


def test_planted_without_the_look_at_what_waits_typed_words_would_answer(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "waiting", lambda descriptor: b"")
    os.write(terminal[0], b"a")
    with key_presses(lambda: False, terminal[1]) as next_key:
        assert next_key() == "a"


def test_a_signal_ends_the_wait(terminal: tuple[int, int]) -> None:
    stopped = threading.Event()
    threading.Timer(0.05, stopped.set).start()
    with key_presses(stopped.is_set, terminal[1]) as next_key:
        assert next_key() == ""


def test_keys_in_quick_succession_are_not_lost(terminal: tuple[int, int]) -> None:
    with key_presses(lambda: False, terminal[1]) as next_key:
        os.write(terminal[0], b"\r")
        assert next_key() == "\r"
        os.write(terminal[0], b"d")
        assert next_key() == "d"


def test_what_was_typed_comes_back_at_the_next_prompt() -> None:
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.input.typeahead import get_typeahead

    def typed(keep: Callable[[], None]) -> str:
        with create_pipe_input() as given, create_app_session(input=given):
            keep()
            return "".join(key.data for key in get_typeahead(given))

    assert typed(lambda: module.keep_for_the_prompt("dé\x1b[A".encode())) == "dé\x1b[A"
    assert typed(lambda: module.keep_for_the_prompt(b"")) == ""
