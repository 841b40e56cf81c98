"""One wording for a file that can't be read or written, in every room."""

from __future__ import annotations

import ast
import errno
import os
import re
from pathlib import Path

import pytest
from mlxchat.engine.file_errors import unreadable, unwritable
from mlxchat.errors import InputError, OutputError

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
OTHER_WORDS = re.compile(r"^… (can't be (read|written|opened)|is not there|does not exist)\b(?! as| from)")
"""What the same fault was called elsewhere. (No JSON, or broken from a line on, is another fault.)"""


def failure(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def other_words(source: str) -> list[str]:
    """Texts of the source that begin with a name and go on to say that it can't be read or written."""
    texts = (
        "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
    )
    return [text for text in texts if OTHER_WORDS.match(text)]


def test_a_file_that_is_not_there() -> None:
    error = unreadable("a.txt", failure(errno.ENOENT))
    assert (type(error), error.message) == (InputError, "can't read a.txt: No such file or directory")
    assert unreadable("a\0", ValueError("embedded null byte")).message == "can't read a\0: embedded null byte"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "a.txt"
    error = unwritable(path, failure(errno.ENOENT), "name another file with --out")
    assert error.message == f"can't write {path}: there is no folder {tmp_path}/absent"
    assert error.hint == "make that folder first, or name another file with --out"


def test_other_reasons_are_the_systems(tmp_path: Path) -> None:
    class Special(OutputError):
        pass

    error = unwritable(tmp_path / "a", failure(errno.ENOENT), kind=Special)
    assert (type(error), error.hint) == (Special, "name another place")
    assert error.message.endswith("/a: No such file or directory"), "its folder is there: a link that leads nowhere"
    assert unwritable("a", failure(errno.ENOSPC)).message == "can't write a: No space left on device"
    assert unwritable("f/a", failure(errno.ENOTDIR)).message == "can't write f/a: f is no folder"


@pytest.mark.parametrize("room", ["cli", "transcripts", "engine", "cache"])
def test_nobody_says_it_in_other_words(room: str) -> None:
    sources = sorted((ROOT / room).rglob("*.py"))
    assert {path.name: found for path in sources if (found := other_words(path.read_text(encoding="utf-8")))} == {}


def test_other_words_would_be_seen() -> None:
    assert other_words("raise InputError(f\"{path} can't be read: {error}\", 'check')") == ["… can't be read: …"]
