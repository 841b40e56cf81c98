"""The two streams: stdout carries the answer or JSON and nothing else, stderr everything around it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Literal, TextIO

from ..engine.sanitize import sanitize_line
from .failures import output_error
from .line_breaking import broken
from .terminal_size import size_of

if TYPE_CHECKING:
    from rich.console import Console

    from ..engine.pictures import Picture

ColorChoice = Literal["auto", "always", "never"]


class Streams:
    """Where text goes, whether it may be coloured, how much is said. `verbosity`: -1 quiet, 0, 1, 2."""

    def __init__(
        self,
        color: ColorChoice = "auto",
        verbosity: int = 0,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.stdout: TextIO = stdout or sys.stdout
        self.stderr: TextIO = stderr or sys.stderr
        self.verbosity = verbosity
        self.environment: Mapping[str, str] = os.environ
        self._choice = color
        self.color = wants_color(color, self.stderr, self.environment)
        self.styled = self.may_style(self.stderr)
        dumb = self.environment.get("TERM") == "dumb"
        self.live = is_terminal(self.stderr) and not dumb and verbosity >= 0
        self.dumb = is_terminal(self.stderr) and dumb and verbosity >= 0
        self.renders = is_terminal(self.stdout) and not dumb
        self.shows_reasoning = self.live and is_terminal(self.stdout)
        self.question: Callable[[], AbstractContextManager[None]] = nullcontext
        """Within it the terminal is somebody's who asks the user something in the middle of a turn."""
        self.aside: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around a line that may come while something on the terminal is still changing."""
        self._console: Console | None = None

    def may_color(self, stream: TextIO) -> bool:
        """Whether `stream` takes colours."""
        return wants_color(self._choice, stream, self.environment)

    def may_style(self, stream: TextIO) -> bool:
        """Whether `stream` takes bold and dim. NO_COLOR leaves those be; --color never doesn't."""
        if self._choice == "auto" and is_terminal(stream) and self.environment.get("TERM") != "dumb":
            return True
        return self.may_color(stream)

    @property
    def quiet(self) -> bool:
        """Whether stderr is kept for errors."""
        return self.verbosity < 0

    def write(self, text: str) -> None:
        """Put `text` on stdout as it is, at once. Raises OutputError if it can't be written (not for a closed pipe)."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise output_error(error) from error

    def note(self, line: str) -> None:
        """One line for the user on stderr, unless quiet; on a terminal as many as it takes, broken between words."""
        shown = sanitize_line(line)
        if is_terminal(self.stderr):
            shown = broken(shown, size_of(self.stderr).columns)
        self._note(shown)

    def note_as_it_is(self, text: str) -> None:
        """The same of what must not be broken: a prompt, to the letter."""
        self._note(sanitize_line(text))

    def _note(self, text: str) -> None:
        if not self.quiet:
            with self.aside(), self._side():
                self.stderr.write(f"{text}\n")

    def ask(self, text: str) -> None:
        """Part of a question to the person at the terminal, on stderr, also when quiet: it has to be answered."""
        with self._side():
            self.stderr.write(sanitize_line(text))

    def dim(self, text: str) -> None:
        """Side text on stderr, dim where the terminal can, without a newline of its own, unless quiet."""
        self.spans([(text, "dim")])

    def spans(self, spans: Sequence[tuple[str, str]]) -> None:
        """Pieces of side text on stderr, each with rich's name of its style, unless quiet."""
        if self.quiet or not any(text for text, _ in spans):
            return
        with self.aside(), self._side():
            if self.styled:
                from rich.text import Text

                self.console.print(Text.assemble(*spans), end="", soft_wrap=True)
            else:
                self.stderr.write("".join(text for text, _ in spans))

    def side(self, text: str) -> None:
        """Put `text` on stderr as it is, at once."""
        with self._side():
            self.stderr.write(text)

    def draw(self, picture: Picture) -> None:
        """Show a picture on stderr, where both streams are a terminal that is known to show pictures."""
        if self.live and is_terminal(self.stdout):
            from .terminal_pictures import show

            with self._side():
                show(picture, self.stderr)

    def notice(self, line: str) -> None:
        """A note that may come while a transient line is up: the line gives way."""
        with self.aside():
            self.transient("")
            self.note(line)

    def transient(self, text: str) -> None:
        """Replace the current line of a live terminal's stderr by `text`; an empty one clears it."""
        if self.live:
            with self._side():
                self.stderr.write(f"\r\x1b[K{text}")

    def control(self, sequence: str) -> None:
        """A sequence of the program's own for the terminal, which shows nothing of it."""
        if self.live:
            with self._side():
                self.stderr.write(sequence)

    @contextmanager
    def _side(self) -> Iterator[None]:
        """Write to stderr. Where that is full or gone the rest is left unsaid: it may cost no answer."""
        try:
            yield
            self.stderr.flush()
        except OSError:
            self.verbosity, self.live, self.shows_reasoning = -1, False, False

    @property
    def console(self) -> Console:
        """Rich's console on stderr, made when first needed: importing rich takes longer than printing help."""
        if self._console is None:
            from rich.console import Console

            class StderrConsole(Console):
                def on_broken_pipe(self) -> None:
                    """Rich would close stdout and leave; `_side` knows better."""
                    raise

            self._console = StderrConsole(
                file=self.stderr, force_terminal=self.styled, no_color=not self.color, highlight=False, markup=False
            )
        return self._console


@contextmanager
def json_alone(machine_output: bool) -> Iterator[None]:
    """Within it what libraries print goes to stderr, if stdout is for JSON. `Streams` made before stay as they are."""
    if not machine_output:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def wants_color(choice: ColorChoice, stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to colour `stream`: by --color, else NO_COLOR, FORCE_COLOR, TERM=dumb, else whether it's a terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return environment.get("TERM") != "dumb" and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal; a closed or missing one is not."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
