"""Brings what a chat says to the disk: lines, pictures, the words of an open answer. A full disk costs no chat."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..engine.events import ReasoningDelta, TextDelta
from ..errors import OutputError
from .journal import Journal, journal_path
from .model import Entry
from .session_appender import SessionAppender, SessionBusy
from .session_images import ImageFolder, has_images
from .session_lines import message_line


class SessionWriter:
    """Writes one session after the other. Nothing here raises: the user is told once, and lines that are missing are
    tried again with the next.

    folder      the folder of sessions
    appender    the session's file
    tell        gets single lines for the user
    """

    def __init__(self, folder: Path, appender: SessionAppender, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._images = ImageFolder(folder)
        self._appender = appender
        self._tell = tell
        self._said_so = self._lost = False

    def turn_to(self, appender: SessionAppender) -> None:
        """From here on write this session; what the one before still lacks is lost."""
        self._lost = self._lost or not self._appender.complete
        self._appender = appender

    @property
    def path(self) -> Path:
        """The session's file, which is made with its first line."""
        return self._appender.path

    @property
    def complete(self) -> bool:
        """Whether every line of the session is in its file."""
        return self._appender.complete

    @property
    def failure(self) -> OutputError | None:
        """Why something of the chat is not on disk; None if all of it is."""
        if self.complete and not self._lost:
            return None
        return OutputError("the chat could not be saved", "free some space, or use --no-save")

    def write(self, *lines: dict[str, Any]) -> None:
        """Append lines, and those that were refused before."""
        try:
            self._appender.append(*lines)
        except (OSError, SessionBusy) as error:
            self._refused(error)

    def write_message(self, entry: Entry) -> None:
        """Append the line of a message, its pictures kept beside the session."""
        if not has_images(entry.message):
            self.write(message_line(entry))
            return
        try:
            with self._images.held():
                self.write(message_line(replace(entry, message=self._images.stored(entry.message))))
        except OSError as error:  # the picture can't be kept; the words can
            self._lost = True
            self._refused(error)
            self.write(message_line(entry))

    def write_words(self, journal: Journal, event: ReasoningDelta | TextDelta) -> None:
        """Keep the words of an answer that goes on."""
        try:
            journal.add("text" if isinstance(event, TextDelta) else "reasoning", event.text)
        except OSError as error:
            self._refused(error)

    def remove(self, journal: Journal | None) -> None:
        """Let a journal go, but only once the session holds its words."""
        if journal is not None and self.complete:
            try:
                journal.remove()
            except OSError as error:
                self._refused(error)

    def close(self) -> None:
        """Try what is missing once more, and let go of the file."""
        if not self.complete:
            self.write()
        self._appender.close()
        with suppress(OSError):
            if not self.path.exists():
                journal_path(self.path).unlink(missing_ok=True)

    def _refused(self, error: OSError | SessionBusy) -> None:
        if not self._said_so:
            self._said_so = True
            cause = error.strerror if isinstance(error, OSError) and error.strerror else error
            self._tell(f"can't save this chat in {self.folder}: {cause}; it goes on unsaved")
