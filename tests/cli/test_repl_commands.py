"""What a line at the prompt is: text or a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.line_breaking import broken
from mlxchat.cli.repl_commands import COMMANDS, Typed, understand, wants_more
from mlxchat.cli.repl_help import GROUPS, help_lines
from mlxchat.errors import UsageError

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("hello", Typed(text="hello")),
        ("  hello  ", Typed(text="hello")),
        ("/help", Typed("/help")),
        (" /exit ", Typed("/exit")),
        ("/clear", Typed("/new")),
        ("/quit", Typed("/exit")),
        ("//help", Typed(text="/help")),
        ("//", Typed(text="/")),
        ('"""\n/help\n  indented\n"""', Typed(text="/help\n  indented")),
        ('"""one line"""', Typed(text="one line")),
        ("// a comment\nint x;", Typed(text="// a comment\nint x;")),
        ("/* a comment */\nint x;", Typed(text="/* a comment */\nint x;")),
        ("what is /help", Typed(text="what is /help")),
        ("", Typed()),
    ],
)
def test_a_line_understood(line: str, typed: Typed) -> None:
    assert understand(line) == typed


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("/hlep", "there is no command /hlep; did you mean /help?"),
        ("/HELP", "did you mean /help?"),
        ("/stat", "did you mean /stats?"),
        ("/xyzzy", "there is no command /xyzzy"),
        ("/xyzzy\nmore", "there is no command /xyzzy"),
        ("/retry please", "/retry takes nothing after it"),
        ("/no/such/file is what", "there is no command /no/such/file"),
        ("/a\0b", "there is no command"),
    ],
)
def test_an_unknown_command_is_never_text(line: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        understand(line)
    assert cause in caught.value.message
    assert "//" in caught.value.hint or "two slashes" in caught.value.hint


def test_a_path_that_exists_is_text(tmp_path: Path) -> None:
    line = f"{tmp_path} is what?"
    assert understand(line) == Typed(text=line)


def test_a_command_beats_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert understand("/help") == Typed("/help")


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("hello", False),
        ("hello\\", True),
        ("hello\\ there", False),
        ('"""', True),
        ('"""\nline', True),
        ('"""\nline\n"""', False),
        ('"""line"""', False),
        ('say """', False),
        ("", False),
    ],
)
def test_when_enter_begins_another_line(text: str, more: bool) -> None:
    assert wants_more(text) is more


def test_help_lists_every_command() -> None:
    text = "\n".join(help_lines())
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("columns", [30, 37, 38, 47, 48, 60, 80, 200])
def test_help_breaks_between_words(columns: int) -> None:
    lines = help_lines(columns)
    assert max(map(len, lines)) < columns
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(help_lines(1000)).split())


@pytest.mark.parametrize("columns", [20, 37])
def test_on_a_narrow_terminal_help_stands_below_each_name_and_is_broken_once(columns: int) -> None:
    lines = help_lines(columns)
    at = lines.index("  /redo")
    assert " ".join(" ".join(lines[at + 1 : lines.index("  /retry")]).split()) == COMMANDS["/redo"]
    assert {len(line) - len(line.lstrip()) for line in lines} == {0, 2, 4}
    assert [broken(line, columns) for line in lines] == lines, "what writes them has nothing left to break"


def test_help_has_every_command_under_one_heading() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    lines = help_lines(60)
    assert [line for line in lines if line and not line.startswith(" ")] == [*GROUPS, "Keys"]
