"""Where the user's words come from: the command line, stdin, text files, a file of turns."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from pathlib import Path

from ..engine.file_errors import unreadable
from ..engine.messages import FilePart, ImagePart, Message, Part, TextPart
from ..errors import DataError, InputError, UsageError
from .turns_file import parse_turns

SILENT_AFTER_S = 1.0
_STDIN = "-"


class Stdin:
    """Standard input as a file descriptor: whether somebody types there, and all its bytes."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    @property
    def is_open(self) -> bool:
        """Whether it is there at all (it can be closed)."""
        try:
            os.fstat(self._descriptor)
        except OSError:
            return False
        return True

    def read(self, on_silence: Callable[[], None] | None = None) -> bytes:
        """Every byte up to its end. `on_silence` is called once if a second passes without one. Raises InputError."""
        chunks: list[bytes] = []
        try:
            while True:
                if not select.select([self._descriptor], [], [], SILENT_AFTER_S)[0]:
                    if on_silence:
                        on_silence()
                        on_silence = None
                    continue  # a Ctrl-C that came just before a read is met here, and would not be by the read
                chunk = os.read(self._descriptor, 1 << 16)
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
        except OSError as error:
            raise InputError(f"can't read stdin: {error.strerror}", "--no-stdin leaves it out") from error


def check_stdin_users(
    words: Sequence[str], files: Sequence[str], turns: str | None, no_stdin: bool, images: Sequence[str] = ()
) -> None:
    """Raise UsageError if two want stdin, or one wants it together with --no-stdin."""
    users = ["the prompt -"] * (list(words) == [_STDIN]) + ["-f -"] * list(files).count(_STDIN)
    users += ["-i -"] * list(images).count(_STDIN) + ["--turns -"] * (turns == _STDIN)
    if len(users) > 1:
        raise UsageError(f"{users[0]} and {users[1]} both want stdin", "only one of them can have it")
    if users and no_stdin:
        raise UsageError(f"{users[0]} and --no-stdin can't go together", "leave one of them out")


def prompt_text(
    words: Sequence[str], stdin: Stdin, taken: bool, no_stdin: bool, notify: Callable[[str], None]
) -> str | None:
    """The prompt: the words, a blank line, what is piped in. None if there is neither.

    `taken` says that stdin goes elsewhere (`-f -`, `-i -`, `--turns -`). Raises DataError for bytes that aren't UTF-8.
    """
    only_stdin = list(words) == [_STDIN]
    typed = None if only_stdin or not words else " ".join(words)
    if typed is not None:
        _check_unicode(typed)
    if not only_stdin and (taken or no_stdin or not stdin.is_open or stdin.is_terminal):
        return typed

    def say_waiting() -> None:
        notify("waiting for stdin to end; --no-stdin sends the prompt without it")

    piped = decode(stdin.read(say_waiting if typed else None), "stdin")
    if typed is None:
        return piped
    return f"{typed}\n\n{piped}" if piped.strip() else typed


def user_message(prompt: str | None, files: Sequence[FilePart], images: Sequence[ImagePart] = ()) -> Message:
    """The message of `images`, `files` and `prompt`, in this order so that another question on them reuses their KV."""
    parts: list[Part] = [*images, *files]
    if prompt:
        parts.append(TextPart(prompt))
    return Message("user", tuple(parts))


def read_files(names: Sequence[str], stdin: Stdin) -> list[FilePart]:
    """Each file as a message part, `-` being stdin. Raises InputError, DataError."""
    return [
        FilePart("stdin", decode(stdin.read(), "stdin")) if name == _STDIN else FilePart(name, read_text(name))
        for name in names
    ]


def read_turns(name: str, stdin: Stdin) -> list[Message]:
    """The messages of `--turns name`. Raises InputError, DataError, and UsageError if there is none."""
    if name == _STDIN:
        return parse_turns(decode(stdin.read(), "stdin"), "stdin")
    return parse_turns(read_text(name), name)


def system_text(given: str | None) -> str | None:
    """`-s TEXT`, `-s @FILE`, or `-s @@text` for a text that begins with an @."""
    if given is None or not given.startswith("@"):
        if given is not None:
            _check_unicode(given)
        return given
    return given[1:] if given.startswith("@@") else read_text(given[1:])


def read_text(name: str) -> str:
    """A UTF-8 text file, without its byte order mark. Raises InputError if it can't be read, DataError if not UTF-8."""
    path = Path(name).expanduser()
    try:
        return decode(path.read_bytes(), name)
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from error


def decode(data: bytes, name: str) -> str:
    """`data` as UTF-8, line ends as newlines. Raises DataError naming the first bad byte."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 text (byte {error.start + 1:,})", "convert it, for example with iconv -t UTF-8"
        ) from error
    return text.replace("\r\n", "\n")


def _check_unicode(text: str) -> None:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise DataError("the prompt is not UTF-8 text", "check the terminal's character set (LANG, LC_ALL)")
