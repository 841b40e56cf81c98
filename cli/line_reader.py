"""The prompt: prompt-toolkit with our keys, and a history that only its owner can read."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth

from ..engine.folders import state_dir
from .pastes import Pastes
from .prompt_completion import PromptCompleter
from .prompt_keys import prompt_keys
from .typed_ahead import TypedAhead
from .typed_keys import keys_in

HISTORY_FILE = "prompt-history"
PAUSE_S = 0.3  # without a key: the words so far may stand for a while


class PrivateHistory(FileHistory):
    """prompt-toolkit's history file, made with mode 0600. A disk that fills up costs history, not the chat."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        self._pastes = pastes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        self.paused = False
        super().__init__(str(path))

    def append_string(self, string: str) -> None:
        """Add an entry, with what its placeholders stand for."""
        super().append_string(self._pastes.expand(string))

    def load_history_strings(self) -> Iterable[str]:
        """Newest first; nothing if the file can't be read."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Append one entry, if the disk lets us and the chat isn't a private one."""
        if self.paused:
            return
        try:
            super().store_string(string)
        except OSError:
            pass


def open_history(pastes: Pastes) -> History:
    """The history file of the state folder, or one in memory where that can't be written."""
    try:
        return PrivateHistory(state_dir() / HISTORY_FILE, pastes)
    except OSError:
        return InMemoryHistory()


class LineReader:
    """Reads what the user types, several lines where they ask for them."""

    def __init__(
        self,
        color: bool,
        on_typed: Callable[[str, bool], None] | None = None,
        print_reasoning: Callable[[], None] | None = None,
        typed_ahead: TypedAhead | None = None,
    ) -> None:
        """Make the prompt, which `read` shows.

        on_typed          told what stands at the prompt at every change, and, with True, once typing has paused
        print_reasoning   called at Ctrl-O, with the prompt out of the way
        typed_ahead       has the keys that were pressed while there was no prompt
        """
        self.multiline = False
        self._pastes = Pastes()
        self._typed_ahead = typed_ahead
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            key_bindings=prompt_keys(self._pastes, lambda: self.multiline, print_reasoning),
            history=open_history(self._pastes),
            completer=PromptCompleter(),
            complete_while_typing=False,
            tempfile_suffix=".md",
            enable_suspend=True,
            prompt_continuation="… ",
            color_depth=None if color else ColorDepth.DEPTH_1_BIT,
        )
        self._given_up: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pressed = False
        if on_typed is not None:
            self._session.default_buffer.on_text_changed += Typing(
                lambda text, paused: on_typed(self._pastes.expand(text), paused)
            )

    def read(self, default: str = "") -> str:
        """One entry, `default` already typed. Raises KeyboardInterrupt at Ctrl-C and EOFError at Ctrl-D.

        Raises what `give_up` was told, at once or while it reads; what stands there by then goes into the history.
        """
        if self._given_up is not None:
            raise self._given_up
        self._loop, self._pressed = None, False
        if self._typed_ahead is not None:
            keys = _presses(self._typed_ahead.take(), to_a_draft=bool(default))
            store_typeahead(self._session.app.input, keys)
        before = signal.signal(signal.SIGINT, self._press)  # prompt-toolkit has its own while the prompt is up
        try:
            line = self._session.prompt("> ", default=default, pre_run=self._begin)
        finally:
            self._loop = None
            signal.signal(signal.SIGINT, before)
        if self._pressed:
            raise KeyboardInterrupt
        return self._pastes.expand(line)

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        """Ctrl-C while the prompt is set up or taken down, which it would leave half done: raised once that is over."""
        self._pressed = True

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._given_up is not None:
            self._leave(self._given_up)
        elif self._pressed:
            self._session.app.exit(exception=KeyboardInterrupt())

    def _leave(self, error: BaseException) -> None:
        if self.typed.strip():
            self._session.history.append_string(self.typed)
        self._session.app.exit(exception=error)

    def give_up(self, error: BaseException) -> None:
        """End reading with `error`; from any thread."""
        self._given_up = error
        self._soon(lambda: self._leave(error))

    def above(self, write: Callable[[], None]) -> None:
        """Have `write` print something above the prompt, or just so where no prompt is up; from any thread."""
        if not self._soon(lambda: run_in_terminal(write)):
            write()

    def _soon(self, work: Callable[[], object]) -> bool:
        """Run `work` on the prompt's loop, if there is one."""
        loop = self._loop
        try:
            if loop is None:
                return False
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # it ended just now
            return False
        return True

    @property
    def private(self) -> bool:
        """Whether what is typed stays out of the history file."""
        return isinstance(self._session.history, PrivateHistory) and self._session.history.paused

    @private.setter
    def private(self, private: bool) -> None:
        if isinstance(self._session.history, PrivateHistory):
            self._session.history.paused = private

    @property
    def typed(self) -> str:
        """What stood at the prompt when `read` was interrupted."""
        return self._session.default_buffer.text


class Typing:
    """Watches the prompt. Runs on prompt-toolkit's event loop."""

    def __init__(self, on_typed: Callable[[str, bool], None]) -> None:
        self._on_typed = on_typed
        self._pause: asyncio.TimerHandle | None = None

    def __call__(self, buffer: Buffer) -> None:
        """The prompt's text has changed."""
        if self._pause is not None:
            self._pause.cancel()
        if buffer.text:
            self._on_typed(buffer.text, False)
            self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._on_typed, buffer.text, True)


def _presses(typed: str, to_a_draft: bool) -> list[KeyPress]:
    """The keys in what a terminal sent. Where they come to a draft, they begin a line of their own and send nothing."""
    presses = keys_in(typed)
    if to_a_draft and presses:
        newline = KeyPress(Keys.ControlJ, "\n")
        presses = [newline if press.key == Keys.ControlM else press for press in presses]
        if presses[0].data.isprintable():
            presses.insert(0, newline)
    return presses
