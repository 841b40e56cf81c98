"""Where the user's words come from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.cli import input_sources
from mlxchat.cli.input_sources import (
    Stdin,
    check_stdin_users,
    prompt_text,
    read_files,
    read_text,
    read_turns,
    system_text,
    user_message,
)
from mlxchat.engine.messages import FilePart
from mlxchat.errors import DataError, InputError, UsageError

pytestmark = pytest.mark.plain


@pytest.fixture
def pipe() -> Iterator[tuple[Stdin, int]]:
    """A stdin, and the end to write into it."""
    read_end, write_end = os.pipe()
    ends = [read_end, write_end]
    try:
        yield Stdin(read_end), write_end
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError:
                pass


def fill(pipe: tuple[Stdin, int], data: bytes) -> Stdin:
    os.write(pipe[1], data)
    os.close(pipe[1])
    return pipe[0]


def ask(words: list[str], stdin: Stdin, taken: bool = False, no_stdin: bool = False) -> str | None:
    return prompt_text(words, stdin, taken, no_stdin, lambda line: None)


def test_words_a_blank_line_and_what_is_piped(pipe: tuple[Stdin, int]) -> None:
    assert ask(["explain", "this"], fill(pipe, b"some code\n")) == "explain this\n\nsome code\n"


def test_piped_text_alone(pipe: tuple[Stdin, int]) -> None:
    assert ask([], fill(pipe, b"question")) == "question"


def test_a_dash_is_stdin_only(pipe: tuple[Stdin, int]) -> None:
    assert ask(["-"], fill(pipe, b"question")) == "question"


def test_an_empty_pipe_adds_nothing(pipe: tuple[Stdin, int]) -> None:
    assert ask(["hello"], fill(pipe, b"\n")) == "hello"


def test_no_stdin_leaves_it_unread(pipe: tuple[Stdin, int]) -> None:
    assert ask(["hello"], fill(pipe, b"noise"), no_stdin=True) == "hello"


def test_a_stdin_that_goes_elsewhere_is_left_alone(pipe: tuple[Stdin, int]) -> None:
    assert ask(["hello"], fill(pipe, b"a file"), taken=True) == "hello"


def test_a_closed_stdin_is_no_stdin() -> None:
    closed = Stdin(987)
    assert not closed.is_open
    assert not closed.is_terminal
    assert ask(["hello"], closed) == "hello"


def test_silence_is_mentioned_once(pipe: tuple[Stdin, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sources, "SILENT_AFTER_S", 0.01)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        fill(pipe, b"late")

    assert prompt_text(["hello"], pipe[0], False, False, say) == "hello\n\nlate"
    assert len(said) == 1
    assert "--no-stdin" in said[0]


def test_without_a_prompt_silence_is_waited_out(pipe: tuple[Stdin, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sources, "SILENT_AFTER_S", 0.0)
    said: list[str] = []
    assert prompt_text([], fill(pipe, b"x"), False, False, said.append) == "x"
    assert not said


@pytest.mark.parametrize(
    ("words", "files", "turns", "no_stdin", "named"),
    [
        (["-"], ["-"], None, False, "the prompt - and -f -"),
        ([], ["-", "-"], None, False, "-f - and -f -"),
        (["-"], [], "-", False, "the prompt - and --turns -"),
        (["-"], [], None, True, "the prompt - and --no-stdin"),
        ([], ["-"], None, True, "-f - and --no-stdin"),
    ],
)
def test_two_who_want_stdin(words: list[str], files: list[str], turns: str | None, no_stdin: bool, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        check_stdin_users(words, files, turns, no_stdin)


def test_one_who_wants_stdin_gets_it() -> None:
    check_stdin_users(["-"], ["a.txt"], None, False)
    check_stdin_users(["hello", "-"], ["-"], None, False)
    check_stdin_users(["hello"], [], None, True)


def test_files_come_first_and_keep_their_names(tmp_path: Path, pipe: tuple[Stdin, int]) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes("\ufeffnötes\r\n".encode())
    files = read_files([str(path), "-"], fill(pipe, b"piped"))
    assert files == [FilePart(str(path), "nötes\n"), FilePart("stdin", "piped")]
    text = user_message("sum up", files).text
    assert text.index("nötes") < text.index("piped") < text.index("sum up")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_text(str(tmp_path / "absent.txt"))
    with pytest.raises(InputError, match="directory"):
        read_text(str(tmp_path))
    with pytest.raises(InputError):
        read_text("a\0b")


def test_what_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"latin.txt is not UTF-8 text \(byte 4\)"):
        read_text(str(path))


def test_a_prompt_that_is_not_utf8(pipe: tuple[Stdin, int]) -> None:
    with pytest.raises(DataError, match="UTF-8"):
        ask(["caf\udce9"], pipe[0], no_stdin=True)
    with pytest.raises(DataError, match="stdin is not UTF-8"):
        ask([], fill(pipe, b"\xff"))


def test_system_prompts(tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text("Be brief.", encoding="utf-8")
    assert system_text(None) is None
    assert system_text("Be kind.") == "Be kind."
    assert system_text(f"@{path}") == "Be brief."
    assert system_text("@@home") == "@home"
    with pytest.raises(InputError):
        system_text("@/absent/file")
    with pytest.raises(DataError):
        system_text("\udce9")


def test_turns_from_stdin(pipe: tuple[Stdin, int]) -> None:
    assert [m.text for m in read_turns("-", fill(pipe, b"one\ntwo\n"))] == ["one", "two"]
