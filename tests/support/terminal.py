"""A terminal for tests: the program behind a pseudo terminal, its screen in front. It waits for text, not time."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pexpect
import pyte

ROWS, COLUMNS = 40, 120
PATIENCE_S = 90.0  # a loaded machine takes its time, and only a test that fails waits for it all

_DIM, _BRIGHT_BLACK = 2, 90

CTRL_O = "\x0f"
ENTER, ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, UP = "\r", "\x1b\r", "\x03", "\x04", "\n", "\x1b[A"


@dataclass(frozen=True)
class Cell:
    """A character on the screen."""

    data: str
    style: str

    @classmethod
    def of(cls, char: Any) -> Cell:
        """From pyte's."""
        words = [name for name in ("bold", "reverse") if getattr(char, name)]
        words += ["italic"] * char.italics + ["underline"] * char.underscore
        words += [] if char.fg == "default" else [_color(char.fg)]
        words += [] if char.bg == "default" else ["on", _color(char.bg)]
        return cls(char.data, " ".join(words))


def _color(name: str) -> str:
    """Rich's name of a colour that pyte calls `name`."""
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bright", "bright_").replace("bfight", "bright_").replace("brown", "yellow")


class _Screen(pyte.HistoryScreen):
    """Answers the questions that prompt-toolkit asks a terminal."""

    def __init__(self, child: pexpect.spawn, rows: int, columns: int) -> None:
        super().__init__(columns, rows, history=1000)
        self._child = child

    def select_graphic_rendition(self, *attributes: int, **more: bool) -> None:
        """Dim, which pyte doesn't know, becomes bright black."""
        super().select_graphic_rendition(*(_BRIGHT_BLACK if one == _DIM else one for one in attributes), **more)

    def write_process_input(self, data: str) -> None:
        self._child.send(data)


class Terminal:
    """A context manager round one run of the program."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        program: str = sys.executable,
        *,
        rows: int = ROWS,
        columns: int = COLUMNS,
        term: str = "xterm-256color",
    ) -> None:
        self._child = pexpect.spawn(
            program,
            list(arguments),
            env={**environment, "TERM": term, "LANG": "C.UTF-8", "XTERM_VERSION": "pyte breaks no line anew either"},
            dimensions=(rows, columns),
            encoding="utf-8",
            timeout=PATIENCE_S,
        )
        self._child.delaybeforesend = None
        self.raw = ""
        self._screen = _Screen(self._child, rows, columns)
        self._stream = pyte.Stream(self._screen)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._child.ptyproc.delayafterterminate = 2.0  # a loaded machine takes its time to reap
        self._child.close(force=True)

    @property
    def text(self) -> str:
        """What is on the screen, without trailing blanks."""
        lines = [line.rstrip() for line in self._screen.display]
        return "\n".join(lines).rstrip()

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    @property
    def everything(self) -> str:
        """What has left the screen at its top, and what is on it, without trailing blanks."""
        columns = range(self._screen.columns)
        gone = ["".join(row[at].data for at in columns).rstrip() for row in self._screen.history.top]
        return "\n".join([*gone, self.text])

    @property
    def cells(self) -> list[list[Cell]]:
        """The characters on the screen, row by row, with their styles in rich's words."""
        columns, buffer = range(self._screen.columns), self._screen.buffer
        return [[Cell.of(buffer[row][at]) for at in columns] for row in range(self._screen.lines)]

    def resize(self, rows: int, columns: int) -> None:
        """Make the window another size; the program is told by a signal."""
        self._screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def send(self, keys: str) -> None:
        self._child.send(keys)

    def line(self, text: str) -> None:
        """Type a line and press Enter."""
        self.send(text + ENTER)

    def wait_for(self, pattern: str, after: str = "") -> None:
        """Until the regular expression `pattern` is on the screen (past the last line that holds `after`)."""
        while not self._found(pattern, after):
            try:
                self._feed(self._child.read_nonblocking(4096, timeout=PATIENCE_S))
            except pexpect.TIMEOUT:
                raise AssertionError(f"no {pattern!r} on the screen:\n{self.text}") from None
            except pexpect.EOF:
                if self._found(pattern, after):
                    return
                raise AssertionError(f"ended without {pattern!r} on the screen:\n{self.text}") from None

    def wait_for_prompt(self, typed: str = "") -> None:
        """Until the last line is the prompt with `typed` on it."""
        self.wait_for(rf"(?m)^> {re.escape(typed)}\Z" if typed else r"(?m)^>\Z")

    def wait_for_exit(self) -> int:
        """Until the program ends; its exit code."""
        while True:
            try:
                self._feed(self._child.read_nonblocking(4096, timeout=PATIENCE_S))
            except pexpect.EOF:
                break
        self._child.wait()
        return int(self._child.exitstatus if self._child.exitstatus is not None else -self._child.signalstatus)

    def _feed(self, data: str) -> None:
        self.raw += data
        self._stream.feed(data)

    def _found(self, pattern: str, after: str) -> Any:
        text = self.text
        if after:
            if after not in text:
                return None
            text = text[text.rindex(after) + len(after) :]
        return re.search(pattern, text)
