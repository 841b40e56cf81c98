"""Files, the clipboard, and lines of several."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import clipboard, repl_inputs
from mlxchat.cli.pictures import stage
from mlxchat.cli.streams import Streams
from mlxchat.errors import InputError, OutputError, UsageError
from PIL import Image, ImageGrab
from support.fake_tty import Tty
from support.repl_talk import Conversation

pytestmark = pytest.mark.plain


class Board:
    """A clipboard, in the place of pyperclip."""

    def __init__(self, text: str = "", broken: bool = False) -> None:
        self.text, self.broken = text, broken

    def copy(self, text: str) -> None:
        if self.broken:
            raise RuntimeError("no xclip")
        self.text = text

    def paste(self) -> str:
        if self.broken:
            raise RuntimeError("no xclip")
        return self.text


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    made = Board()
    monkeypatch.setattr(clipboard, "_library", lambda: made)
    monkeypatch.setattr(ImageGrab, "grabclipboard", lambda: None)
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    return made


class TestFiles:
    def test_one_goes_with_the_next_message_only(self, home: Path) -> None:
        (home / "a b.txt").write_text("two\nlines")
        held = Conversation(home, f"/file {home}/a b.txt", "/file", "say one", "say two")
        assert f"{home}/a b.txt (2 lines) goes with your next message" in held.said
        assert f"1  {home}/a b.txt\n" in held.said
        assert "two\nlines" in held.chat.messages[0].text
        assert held.chat.messages[2].text == "say two"

    def test_it_can_stay_here(self, home: Path) -> None:
        (home / "a.txt").write_text("a")
        (home / "b.txt").write_text("b")
        held = Conversation(home, f"/file {home}/a.txt", f"/file {home}/b.txt", "/detach a.txt", "/detach 1", "/file")
        assert held.said.endswith("nothing goes with your next message; /file PATH sends a text file along\n")

    def test_what_is_no_text_is_said(self, home: Path) -> None:
        (home / "bytes").write_bytes(b"\xff\xfe\xff")
        held = Conversation(home, f"/file {home}/bytes", "/file absent.txt")
        assert "is not UTF-8 text" in held.said
        assert "can't read absent.txt" in held.said


class TestCopy:
    def test_the_last_answer(self, home: Path, board: Board) -> None:
        held = Conversation(home, "say one", "say more", "/copy")
        assert board.text == "more"
        assert "the last answer (4 characters) is in the clipboard" in held.said
        assert "there is no answer to copy" in Conversation(home, "/copy").said

    def test_without_a_clipboard_one_line_says_so(self, home: Path, board: Board) -> None:
        board.broken = True
        assert "mlxchat: there is no clipboard here\n" in Conversation(home, "say one", "/copy").said

    @pytest.mark.parametrize("far", [True, False])
    def test_the_terminal_has_one(self, board: Board, monkeypatch: pytest.MonkeyPatch, far: bool) -> None:
        board.broken = not far
        if far:
            monkeypatch.setenv("SSH_TTY", "/dev/pts/1")
        monkeypatch.setenv("TERM", "xterm")
        terminal = Tty()
        streams = Streams("never", stdout=terminal, stderr=terminal)
        assert "if it allows that" in clipboard.copy("höh", streams)
        assert terminal.getvalue() == f"\x1b]52;c;{base64.b64encode('höh'.encode()).decode()}\x07"
        assert board.text == "", "the clipboard of the machine far away is nobody's"
        with pytest.raises(OutputError, match="too long"):
            clipboard.copy("x" * 100_000, streams)


class TestPaste:
    def test_text_stands_at_the_prompt(self, home: Path, board: Board) -> None:
        board.text = "two\r\nlines"
        held = Conversation(home, "/paste")
        assert held.typist.drafts == ["", "two\nlines"]
        assert held.messages == []

    def test_nothing_there_or_nobody_to_ask(self, home: Path, board: Board) -> None:
        assert "there is no text in the clipboard" in Conversation(home, "/paste").said
        board.broken = True
        assert "mlxchat: this machine has no clipboard that can be read\n" in Conversation(home, "/paste").said

    def test_a_picture_goes_along(self, home: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ImageGrab, "grabclipboard", lambda: Image.new("RGB", (4, 2)))
        held = Conversation(home, "/paste", "say one")
        assert "the clipboard (4 × 2) goes with your next message" in held.said
        assert type(held.chat.messages[0].content[0]).__name__ == "ImagePart"

    @pytest.mark.parametrize("found", [["absent.png"], "words", RuntimeError("no wl-paste")])
    def test_what_is_no_picture_is_none(self, monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
        def grab() -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(ImageGrab, "grabclipboard", grab)
        assert clipboard.paste_picture() is None

    def test_a_file_that_was_copied(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.png").write_bytes(b"bytes")
        monkeypatch.setattr(ImageGrab, "grabclipboard", lambda: [str(tmp_path / "a.png")])
        assert clipboard.paste_picture() == b"bytes"

    def test_a_text_model_gets_the_text(self, board: Board, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        asked: list[int] = []
        monkeypatch.setattr(repl_inputs, "paste_picture", lambda: asked.append(1))
        held = Conversation(home)
        held.attachments.sees = False
        board.text = "words"
        held.repl.commands["/paste"]("")
        assert (asked, held.repl._state.draft) == ([], "words")


def test_lines_of_several(home: Path) -> None:
    held = Conversation(home, "/multiline", "/multiline", "/multiline")
    assert held.typist.multiline
    assert held.said.count("Alt-Enter sends") == 2
    assert "Enter sends, Alt-Enter begins a new line" in held.said


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("", "a picture needs a name, and this one is empty"),
        (" ", "a picture needs a name, and this one is empty"),
        ("ftp://example.org/a.png", "pictures aren't fetched by ftp, only by http and https"),
        ("S3://bucket/a.png", "pictures aren't fetched by S3, only by http and https"),
    ],
)
def test_names_that_no_picture_has(name: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        stage(name)
    assert caught.value.message == cause


def test_a_colon_alone_is_no_scheme(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't read"):
        stage(f"{tmp_path}/a: b.png")
