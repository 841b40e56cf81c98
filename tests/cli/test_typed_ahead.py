"""Keys while the model works, on a pseudo-terminal without a program."""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Iterator

import pytest
from mlxchat.cli.line_reader import _presses
from mlxchat.cli.typed_ahead import TypedAhead
from support.scripted import wait_until

pytestmark = pytest.mark.plain


class Keyboard:
    """Its `press` is what a person does; `keys` is under test."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        tty.setraw(theirs)
        self._theirs = theirs
        self.written: list[str] = []
        self.presses = 0
        self.keys = TypedAhead(self.written.append, theirs)

    def press(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def count(self) -> None:
        self.presses += 1

    def close(self) -> None:
        self.keys.stop()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def keyboard() -> Iterator[Keyboard]:
    keyboard = Keyboard()
    yield keyboard
    keyboard.close()


def test_what_is_typed_waits_and_ctrl_o_acts(keyboard: Keyboard) -> None:
    keyboard.keys.start(keyboard.count)
    keyboard.press("abc\x0fdéf\r")
    wait_until(lambda: keyboard.keys._held.endswith(b"\r"), "the keys")
    assert keyboard.presses == 1
    keyboard.keys.stop()
    assert keyboard.keys.take() == "abcdéf\r"
    assert keyboard.keys.take() == ""


def test_a_paste_is_left_as_it_is(keyboard: Keyboard) -> None:
    keyboard.keys.start(keyboard.count)
    keyboard.press("\x1b[200~a\x0f")
    wait_until(lambda: b"\x0f" in keyboard.keys._held, "the beginning")
    keyboard.press("\x0fb\x1b[201~")
    wait_until(lambda: keyboard.keys._held.endswith(b"~b\x1b[201~") or b"b\x1b" in keyboard.keys._held, "the end")
    assert keyboard.presses == 0
    assert keyboard.keys.take() == "\x1b[200~a\x0f\x0fb\x1b[201~"


def test_pastes_are_marked_meanwhile_only(keyboard: Keyboard) -> None:
    keyboard.keys.start(keyboard.count)
    keyboard.keys.start(keyboard.count)
    keyboard.keys.stop()
    keyboard.keys.stop()
    assert keyboard.written == ["\x1b[?2004h", "\x1b[?2004l"]


def test_after_the_stop_keys_are_somebody_elses(keyboard: Keyboard) -> None:
    keyboard.keys.start(keyboard.count)
    keyboard.keys.stop()
    keyboard.press("y")
    assert os.read(keyboard._theirs, 10) == b"y"
    assert keyboard.keys.take() == ""


def test_enter_before_the_terminal_was_ready_is_enter(keyboard: Keyboard) -> None:
    keyboard.press("early\n")
    wait_until(lambda: (keyboard.keys.gather(), bool(keyboard.keys._held))[1], "the line")
    assert keyboard.keys.take() == "early\r"


def test_no_terminal_no_keys() -> None:
    reader, writer = os.pipe()
    keys = TypedAhead(lambda _: None, reader)
    keys.gather()
    keys.start(lambda: None)
    assert not [thread for thread in threading.enumerate() if thread.name == "keys"]
    keys.stop()
    os.close(reader)
    os.close(writer)


def test_keys_for_a_draft_begin_a_line_and_send_nothing() -> None:
    assert [press.key for press in _presses("a\r", to_a_draft=False)] == ["a", "c-m"]
    assert [press.key for press in _presses("a\r", to_a_draft=True)] == ["c-j", "a", "c-j"]
    assert [press.key for press in _presses("\x04", to_a_draft=True)] == ["c-d"]


def test_a_paste_under_way_is_taken_whole(keyboard: Keyboard) -> None:
    keyboard.keys.start(keyboard.count)
    keyboard.press("\x1b[200~one\r")
    wait_until(lambda: keyboard.keys._held.endswith(b"\r"), "the keys")
    rest = threading.Timer(0.1, keyboard.press, ("two\r\x1b[201~",))
    rest.start()
    keyboard.keys.stop()
    rest.join()
    assert keyboard.keys.take() == "\x1b[200~one\rtwo\r\x1b[201~"


def test_of_a_paste_without_an_end_nothing_is_lost() -> None:
    keys = _presses("a\x1b[200~one\rtwo", to_a_draft=False)
    assert [key.data for key in keys] == ["a", "one\rtwo"]
