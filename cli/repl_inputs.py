"""What goes into the next message, and what comes out of the last answer: pictures, files, the clipboard."""

from __future__ import annotations

from typing import Protocol

from ..errors import UsageError
from .clipboard import copy, paste_picture, paste_text
from .repl_state import Command, ReplState, counted


class Lines(Protocol):
    """Where lines are typed."""

    multiline: bool
    """Whether Enter begins a new line, and Alt-Enter sends."""


class ReplInputs:
    """The commands around the next message. `reader` is where it is typed."""

    def __init__(self, state: ReplState, reader: Lines) -> None:
        self._state = state
        self._reader = reader

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {
            "/image": self._image,
            "/file": self._file,
            "/detach": self._detach,
            "/paste": self._paste,
            "/copy": self._copy,
            "/multiline": self._multiline,
        }

    def _image(self, source: str) -> None:
        if not source:
            self._list("/image PATH or URL stages a picture")
            return
        staged = self._state.attachments.stage(source)
        self._state.streams.draw(staged.picture)
        self._state.note(f"{staged} goes with your next message")

    def _file(self, name: str) -> None:
        if not name:
            self._list("/file PATH sends a text file along")
            return
        part = self._state.attachments.stage_file(name)
        self._state.note(f"{part.name} ({counted(part.text.count(chr(10)) + 1, 'line')}) goes with your next message")

    def _list(self, hint: str) -> None:
        for number, name in enumerate(self._state.attachments.names, 1):
            self._state.note(f"{number}  {name}")
        if not self._state.attachments.names:
            self._state.note(f"nothing goes with your next message; {hint}")

    def _detach(self, which: str) -> None:
        for name in self._state.attachments.detach(which):
            self._state.note(f"{name} stays here")

    def _paste(self, _: str) -> None:
        """A picture where there is one and the model sees; else the text, at the prompt to be looked at and sent."""
        data = paste_picture() if self._state.attachments.sees else None
        if data is not None:
            staged = self._state.attachments.stage_bytes(data, "the clipboard")
            self._state.streams.draw(staged.picture)
            self._state.note(f"{staged} goes with your next message")
            return
        text = paste_text()
        if not text.strip():
            self._state.note("there is no text in the clipboard")
        else:
            self._state.draft = text

    def _copy(self, _: str) -> None:
        answers = [one.text for one in self._state.chat.messages if one.role == "assistant" and one.text.strip()]
        if not answers:
            raise UsageError("there is no answer to copy", "ask something first")
        where = copy(answers[-1], self._state.streams)
        self._state.note(f"the last answer ({counted(len(answers[-1]), 'character')}) is in {where}")

    def _multiline(self, _: str) -> None:
        self._reader.multiline = not self._reader.multiline
        if self._reader.multiline:
            self._state.note("Enter begins a new line, Alt-Enter sends; /multiline turns that back")
        else:
            self._state.note("Enter sends, Alt-Enter begins a new line")
