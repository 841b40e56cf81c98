"""What /help prints: the commands by what they are about, and the keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .line_breaking import wrapped
from .repl_commands import ARGUMENTS, COMMANDS

GROUPS = {
    "The conversation": ("/undo", "/redo", "/retry", "/edit", "/rewind", "/drop", "/tree"),
    "Chats": ("/new", "/private", "/fork", "/sessions", "/load", "/rename", "/search", "/export"),
    "The next message": ("/image", "/file", "/detach", "/paste", "/copy", "/multiline"),
    "Settings": ("/system", "/set", "/think", "/markdown"),
    "Models and tools": ("/model", "/models", "/tools", "/mcp"),
    "Looking": ("/tokens", "/prompt", "/stats", "/cache", "/help", "/exit"),
}
"""Every command under one heading."""

KEYS = (
    ("Enter", "sends; Alt-Enter, Ctrl-J or a backslash at the end begin a new line"),
    ('"""', "begins and ends a block of several lines"),
    ("//text", "sends text that begins with a slash"),
    ("Up, Ctrl-R", "earlier messages; Ctrl-X Ctrl-E opens your editor"),
    ("Ctrl-O", "shows or hides reasoning while it comes; afterwards prints the last one"),
    ("Ctrl-C", "stops the answer and keeps what it said; at an empty prompt twice: leaves"),
)
_NAMES, _NARROW_NAMES, _INDENT = 25, 19, 4  # columns that names take; longer ones get a line of their own, or all do
_NARROW, _NARROWEST = 72, 48


def help_lines(columns: int = 80) -> list[str]:
    """What /help prints on a terminal that is so wide."""
    lines: list[str] = []
    for heading, names in GROUPS.items():
        lines += [heading, *_rows([(_usage(name), COMMANDS[name]) for name in names], columns), ""]
    return [*lines, "Keys", *_rows(KEYS, columns)]


def _usage(name: str) -> str:
    return f"{name} {ARGUMENTS.get(name, '')}".rstrip()


def _rows(pairs: Sequence[tuple[str, str]], columns: int) -> Iterator[str]:
    width = _NAMES if columns >= _NARROW else _NARROW_NAMES if columns >= _NARROWEST else _INDENT
    indent = " " * width
    for name, words in pairs:
        if len(name) > width - 4:
            yield from wrapped(name, columns - 1, "  ", indent)
            yield from wrapped(words, columns - 1, indent, indent)
        else:
            yield from wrapped(words, columns - 1, f"  {name:<{width - 2}}", indent)
