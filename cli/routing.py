"""The one step between argv and the parser: `mlxchat "question"` becomes `mlxchat chat "question"`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..errors import UsageError

COMMANDS = ("chat", "replay", "sessions", "models", "batch", "cache", "convert", "config", "doctor")
"""Every command. As a prompt such a word has to be forced: `mlxchat chat replay`."""

PROGRAM = "mlxchat"
DEFAULT_COMMAND = "chat"
_LONGEST_ECHO = 80
_MOST_LETTERS_OFF = 2


@dataclass(frozen=True)
class OptionTable:
    """What the step must know of the options: which of chat's take a value, which belong to the program itself."""

    with_value: Collection[str]
    program: Collection[str]


def route(args: Sequence[str], table: OptionTable) -> list[str]:
    """`args` as the parser should see them: a command first, or an option of the program itself.

    Raises UsageError for a word within two letters of a command, and for a command behind options of the chat.
    """
    at = first_word(args, table.with_value)
    if at is None:
        alone = any(arg in table.program for arg in args) and "--" not in args
        return list(args) if alone else [DEFAULT_COMMAND, *args]
    word = args[at]
    if word in COMMANDS:
        _check_command(word, at, args)
        return [word, *args[:at], *args[at + 1 :]]
    meant = nearest_command(word)
    if meant:
        raise UsageError(f"`{word}` is no command; did you mean `{meant}`?", f"to send it as a prompt: {_forced(args)}")
    return [DEFAULT_COMMAND, *args]


def first_word(args: Sequence[str], with_value: Collection[str]) -> int | None:
    """The index of the first argument that is neither an option nor its value. None: there is none before `--`."""
    skip = False
    for at, arg in enumerate(args):
        if skip:
            skip = False
        elif arg == "--":
            return None
        elif arg.startswith("-") and arg != "-":
            skip = _wants_next(arg, with_value)
        else:
            return at
    return None


def nearest_command(word: str) -> str | None:
    """The command that `word` is probably a slip of, or None.

    `chat` is never typed by hand, and ordinary first words (what, that, can) are within two letters of it: only a
    slip of one letter that keeps its first one counts.
    """
    if not re.fullmatch(r"[A-Za-z]+", word):
        return None
    lower = word.lower()
    near = [(letters_off(lower, name), name) for name in COMMANDS]
    near = [(off, name) for off, name in near if off <= (1 if name == DEFAULT_COMMAND else _MOST_LETTERS_OFF)]
    if not lower.startswith(DEFAULT_COMMAND[0]):
        near = [(off, name) for off, name in near if name != DEFAULT_COMMAND]
    return min(near)[1] if near else None


def letters_off(a: str, b: str) -> int:
    """How many letters to add, drop, change or swap with a neighbour to get from `a` to `b`."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            cost = min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            new.append(cost)
        before, row = row, new
    return row[-1]


def _wants_next(arg: str, with_value: Collection[str]) -> bool:
    """Whether the argument after option `arg` is its value."""
    if arg.startswith("--"):
        return "=" not in arg and arg in with_value
    for at, letter in enumerate(arg[1:], 1):  # a cluster: -qm NAME
        if f"-{letter}" in with_value:
            return at == len(arg) - 1
    return False


def _check_command(word: str, at: int, args: Sequence[str]) -> None:
    if at > 0 and word != DEFAULT_COMMAND:
        raise UsageError(
            f"`{word}` is a command, and its options come after it: mlxchat {word} …",
            f"to send it as a prompt: {_forced(args)}",
        )


def _forced(args: Sequence[str]) -> str:
    import shlex

    whole = shlex.join([PROGRAM, DEFAULT_COMMAND, *args])
    if len(whole) <= _LONGEST_ECHO and whole.isprintable():
        return whole
    return f"{PROGRAM} {DEFAULT_COMMAND} …"
