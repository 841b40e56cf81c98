"""Any exception as one of ours: what the parser, Ctrl-C, a full disk or a fault of the program amount to."""

from __future__ import annotations

import re

from typer.exceptions import Abort, TyperException

from ..engine.sanitize import sanitize_line
from ..errors import Interrupted, MlxchatError, OutputError, UsageError
from .routing import DEFAULT_COMMAND, PROGRAM

_OF_A_VALUE = re.compile(r"^(invalid value for '[^']*': )(?:Value error, )?(.)")
"""How the parser's own checker of values begins what it says."""


class Reported(Exception):
    """`error` ended the command, and stdout already holds all it should. Only its two lines are still to be said."""

    def __init__(self, error: MlxchatError) -> None:
        super().__init__(error.message)
        self.error = error


class UnexpectedError(MlxchatError):
    """A fault of the program itself."""

    code = "internal"

    def __init__(self, error: BaseException) -> None:
        words = f": {error}" if str(error) else ""
        super().__init__(
            f"mlxchat failed: {type(error).__name__}{words}",
            "run it again with MLXCHAT_DEBUG=1 set for the traceback, and report it",
        )


def as_mlxchat_error(error: BaseException) -> MlxchatError:
    """`error` itself if it is one of ours, else the one of ours that says the same, `error` being its cause."""
    if isinstance(error, MlxchatError):
        return error
    ours = _translated(error)
    ours.__cause__ = error
    return ours


def _translated(error: BaseException) -> MlxchatError:
    if _is_interrupt(error):
        return Interrupted("interrupted")
    if isinstance(error, Abort):  # a question on the terminal got Ctrl-C, or stdin's end
        return Interrupted("interrupted")
    if isinstance(error, TyperException):
        return _parser_error(error)
    return UnexpectedError(error)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, or was made of it: Python 3.11 turns one that meets a class statement to RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def output_error(error: OSError) -> OutputError:
    """Standard output can't be written to."""
    return OutputError(
        f"can't write to standard output: {error.strerror or error}", "free some space there, or write elsewhere"
    )


def lines(error: MlxchatError) -> list[str]:
    """One line of cause and, if there is any, one of help; each a single line without control characters."""
    return [" ".join(sanitize_line(text).split()) for text in (f"{PROGRAM}: {error.message}", error.hint) if text]


def _parser_error(error: TyperException) -> MlxchatError:
    words = " ".join(error.format_message().split()).removesuffix(".")
    words = words[:1].lower() + words[1:]
    words = _OF_A_VALUE.sub(lambda found: found[1] + found[2].lower(), words)
    if error.exit_code != UsageError.exit_code:
        return MlxchatError(words)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    if path in (PROGRAM, f"{PROGRAM} {DEFAULT_COMMAND}"):
        return UsageError(words, f"see {PROGRAM} --help; after -- everything is prompt")
    return UsageError(words, f"see {path} --help")
