"""Saves a conversation while it goes on: the Recorder that a Chat tells of every change."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..engine.events import ReasoningDelta, TextDelta
from ..engine.messages import Message
from ..engine.messages import system as system_message
from ..engine.stats import RequestStats
from ..errors import OutputError
from .journal import Journal, journal_path
from .model import Entry, Usage
from .session_appender import SessionAppender
from .session_file import SavedSession
from .session_lines import message_line, milliseconds_now, now
from .session_settings import SessionSettings
from .session_writer import SessionWriter
from .sts_lines import HARNESS
from .written_messages import WrittenMessages

VERSION = 1


class SessionRecorder:
    """Appends a chat to its session file, which is made with the first message. Nothing here raises: where the disk
    refuses, the user is told once, the chat goes on, and what is missing is tried again with the next message.

    folder       the folder of sessions; the user is told where it is when it is made
    tell         gets single lines for the user
    settings     how the chat is run
    carried      messages (without the system message) to be written anew before the first new one: a fork's history;
                 their messages, and those of a session that goes on, are the objects that the Chat holds
    forked_from  id of the session they were taken from
    """

    def __init__(
        self,
        folder: Path,
        settings: SessionSettings,
        tell: Callable[[str], None],
        carried: Sequence[Entry] = (),
        forked_from: str | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._tell = tell
        self._writer = SessionWriter(folder, _fresh(folder), tell)
        self._start(carried, forked_from)

    def _start(self, carried: Sequence[Entry] = (), forked_from: str | None = None) -> None:
        """A session that has no file yet."""
        self._journal: Journal | None = None
        self._carried = list(carried)
        self._first: dict[str, Any] | None = {"type": "session", "harness": HARNESS, "id": self.session_id}
        self._first |= {"version": VERSION, "forkedFrom": forked_from}
        self._ids: list[str] = []
        self._written = WrittenMessages()
        self._end: str | None = None

    @classmethod
    def resume(
        cls,
        appender: SessionAppender,
        saved: SavedSession,
        settings: SessionSettings,
        tell: Callable[[str], None],
    ) -> SessionRecorder:
        """To go on in the session that `appender` holds, after the last answer in it.

        Settings other than the saved ones are written before the first new message; another system prompt is a new
        root, and the conversation is written again below it. What a journal kept is written at once.
        """
        conversation = saved.answered
        recorder = cls(appender.path.parent, settings, tell)
        recorder._writer.turn_to(appender)
        if settings == saved.settings:
            recorder._first = None
        else:
            recorder._first = {"type": "settings", "parentId": conversation[-1].id if conversation else None}
        recorder._end = saved.head
        for entry in saved.entries:
            recorder._written.learn(entry)
        if settings.system == saved.settings.system:
            recorder._ids = [entry.id for entry in conversation if entry.id is not None]
        else:
            recorder._carried = [entry for entry in conversation if entry.message.role != "system"]
        if saved.unfinished is not None:
            recorder._writer.write(message_line(saved.unfinished))
        if saved.unfinished is not None and appender.complete:
            journal_path(appender.path).unlink(missing_ok=True)
        return recorder

    @property
    def session_id(self) -> str:
        """The name of the session's file."""
        return self._writer.path.stem

    @property
    def failure(self) -> OutputError | None:
        """Why something of the chat is not on disk; None if all of it is."""
        return self._writer.failure

    # -- what a Chat tells -------------------------------------------------------------------------------------

    def asked(self, index: int, message: Message) -> None:
        """Write the message before the model sees it, and all that has to stand before it."""
        self._begin()
        self._put(index, Entry(message, 0))

    def heard(self, index: int, event: ReasoningDelta | TextDelta) -> None:
        """Keep the words beside the session before they are shown."""
        if self._journal is None:
            self._begin()
            model = self._settings.model
            entry = Entry(Message("assistant"), 0, _message_id(), self._parent(index), now(), model)
            self._journal = Journal(self._writer.path, entry)
        self._writer.write_words(self._journal, event)

    def answered(self, index: int, message: Message, stats: RequestStats) -> None:
        """Write the answer; its journal is no longer needed."""
        self._begin()
        usage = Usage(stats.prompt_tokens, stats.cached_tokens, stats.completion_tokens, stats.reasoning_tokens)
        journal, self._journal = self._journal, None
        entry_id = None if journal is None else journal.id
        self._put(index, Entry(message, 0, entry_id, model=self._settings.model, usage=usage))
        self._writer.remove(journal)

    def stands(self, length: int) -> None:
        """Go back to the first `length` messages; the words of an answer that came to nothing become a branch."""
        if self._ids or self._carried:
            self._begin()
            self._end_journal()
            del self._ids[length:]
            self._write_head()

    def moved(self, messages: Sequence[Message]) -> None:
        """Go to the branch of `messages`; those that were never written on it are written again."""
        system = messages[0].text if messages and messages[0].role == "system" else None
        if self._is_new:
            self._settings = replace(self._settings, system=system)  # nothing was said: the header will have it
            return
        self._begin()
        self._end_journal()
        self.configure(replace(self._settings, system=system))
        self._ids = []
        for index, message in enumerate(messages):
            known = self._written.id_below(self._parent(index), message)
            if known is None:
                self._put(index, self._written.copy_of(message))
            else:
                self._ids.append(known)
        self._write_head()

    @property
    def _is_new(self) -> bool:
        """Whether nothing was said in this session, nor in one that it goes on from."""
        return self._first is not None and self._first["type"] == "session" and not self._carried

    def configure(self, settings: SessionSettings) -> None:
        """From here on the chat is run like this."""
        if settings == self._settings:
            return
        self._settings = settings
        if self._first is None:
            self._writer.write({"type": "settings", "timestamp": milliseconds_now(), **settings.to_json()})

    def fork(self) -> SessionRecorder:
        """A recorder of a session of its own, which goes on from a copy of the conversation as it stands."""
        entries = [self._written.entry(one) for one in self._ids] + self._carried
        said = [entry for entry in entries if entry.message.role != "system"]
        return SessionRecorder(self._folder, self._settings, self._tell, said, forked_from=self.session_id)

    @property
    def settings(self) -> SessionSettings:
        """How the chat is run."""
        return self._settings

    def cleared(self) -> None:
        """Leave this session as it is; the next message begins another."""
        self.close()
        self._writer.turn_to(_fresh(self._folder))
        self._start()

    def close(self) -> None:
        """Let go of the session. Words of an answer that never ended become a branch."""
        self._end_journal()
        self._write_head()
        self._writer.close()

    # -- what is written ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """What must stand before a new message: a header, or the settings that changed; carried messages."""
        if self._first is not None:
            first, self._first = self._first, None
            known = {name: value for name, value in first.items() if value is not None}
            is_new = not self._folder.exists()
            self._writer.write({**known, "timestamp": milliseconds_now(), **self._settings.to_json()})
            if is_new and self._writer.complete:
                self._tell(f"Chats are saved in {self._folder}, for you alone; --no-save or /private leaves nothing.")
        if not self._ids and self._settings.system is not None:
            self._put(0, Entry(system_message(self._settings.system), 0))
        carried, self._carried = self._carried, []
        for entry in carried:
            self._put(len(self._ids), replace(entry, id=None))

    def _put(self, index: int, entry: Entry) -> None:
        """Append a message as the one at `index`, with an id and a time if it has none yet."""
        entry = replace(entry, id=entry.id or _message_id(), parent_id=self._parent(index), time=entry.time or now())
        assert entry.id is not None
        self._ids[index:] = [entry.id]
        self._written.learn(entry)
        self._end = entry.id
        self._writer.write_message(entry)

    def _end_journal(self) -> None:
        """Make a message of an answer that came to nothing, on a branch of its own, if it has words."""
        journal, self._journal = self._journal, None
        entry = None if journal is None else journal.entry
        if entry is not None:
            self._writer.write(message_line(entry))
            self._end = entry.id
        self._writer.remove(journal)

    def _write_head(self) -> None:
        """Say where the conversation stands, if it isn't the message written last."""
        if self._carried:  # nothing was said since it was resumed below another system prompt: it stands where it stood
            return
        head = self._ids[-1] if self._ids else None
        if head != self._end:
            self._end = head
            self._writer.write({"type": "head", "messageId": head})

    def _parent(self, index: int) -> str | None:
        return self._ids[index - 1] if index else None


def _fresh(folder: Path) -> SessionAppender:
    """The file of a new session, which isn't made yet. The first few digits of its name are enough to name it."""
    return SessionAppender(folder / f"{secrets.token_hex(6)}.jsonl")


def _message_id() -> str:
    return secrets.token_hex(5)
