"""Saved chats from within a conversation: list, search, name, and go on with another one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..errors import UsageError
from ..transcripts.session_file import read_session
from ..transcripts.session_search import search
from ..transcripts.session_store import SessionStore
from .chat_flags import ChatFlags
from .failures import as_mlxchat_error, lines
from .saved_chat import SavedChat, open_chat, settings_of
from .session_table import session_table
from .streams import Streams

if TYPE_CHECKING:
    from ..engine.chat import Chat

_MOST_FOUND = 20


@dataclass(frozen=True)
class LoadedChat:
    """A chat that goes on. `unanswered` is a message at its end that got no answer."""

    chat: Chat
    options: RequestOptions
    unanswered: Message | None


class ReplSessions:
    """The saved chats, and which of them the conversation is.

    typed      the command line as it was given
    saved      the chat that it began with
    new_chat   makes the conversation of a saved chat, on the model that is loaded
    """

    def __init__(
        self, typed: ChatFlags, saved: SavedChat, new_chat: Callable[[SavedChat], Chat], streams: Streams
    ) -> None:
        self._typed = typed
        self._current = saved
        self._new_chat = new_chat
        self._streams = streams
        self._store = SessionStore()

    def close(self) -> None:
        """Let go of the session."""
        self._current.close()

    def exit_code(self, code: int) -> int:
        """`code`, unless all went well but for saving."""
        return self._current.exit_code(code)

    def list(self) -> None:
        """Show the saved chats, the one used last first."""
        sessions, troubles = self._store.readable()
        for line in session_table(sessions) if sessions else ["no chat is saved yet"]:
            self._streams.note(line)
        for trouble in troubles:
            self._streams.note(lines(as_mlxchat_error(trouble))[0])

    def search(self, words: str) -> None:
        """Show messages of saved chats that hold `words`. Raises UsageError if there are none to look for."""
        if not words:
            raise UsageError("there is nothing to look for", "/search WORDS")
        found = builtins.list(search(self._store.readable()[0], words))
        for one in found[:_MOST_FOUND]:
            self._streams.note(f"{one.session.id}  {one.role:<9}  {one.excerpt}")
        if not found:
            self._streams.note("no saved chat holds that")
        elif len(found) > _MOST_FOUND:
            self._streams.note(f"… and {len(found) - _MOST_FOUND:,} more; mlxchat sessions search shows all")

    def rename(self, name: str) -> None:
        """Give this chat a name; without one, say what it is called. Raises UsageError, OutputError."""
        session_id = self._current.session_id
        if session_id is None:
            raise UsageError("this chat isn't saved", "it was begun with --no-save")
        path = self._store.folder / f"{session_id}.jsonl"
        if not path.exists():
            raise UsageError("this chat isn't saved yet", "say something first")
        if not name:
            saved = read_session(path)
            self._streams.note(f"{session_id} is saved as “{saved.title}”; /rename NAME gives it a name")
            return
        name = " ".join(name.split())
        self._store.rename(path, name)
        self._streams.note(f"{session_id} is called “{name}”")

    def load(self, which: str) -> LoadedChat:
        """Leave this chat and go on with the saved one whose id begins with `which`.

        Raises UsageError if it belongs to another model or template than is loaded, or is this one; and what
        `open_chat` raises.
        """
        if not which:
            raise UsageError("/load needs a chat", "/sessions lists their ids")
        path = self._store.find(which)
        if path.stem == self._current.session_id:
            raise UsageError(f"{path.stem} is this chat", "/sessions lists the others")
        wanted, here = read_session(path).settings, settings_of(self._current.flags, None)
        if (wanted.model, wanted.template, wanted.adapter) != (here.model, here.template, here.adapter):
            of = f"the model {wanted.model}" if wanted.model != here.model else "another template or adapter"
            raise UsageError(f"{path.stem} is a chat with {of}", f"leave, then: mlxchat -r {path.stem}")
        flags = replace(
            self._typed,
            resume=path.stem,
            continue_last=False,
            fork=False,
            model=self._current.flags.model,
            template=self._current.flags.template,
            adapter=self._current.flags.adapter,
        )
        opened = open_chat(flags, None, self._streams)
        self._current.close()
        self._current = opened
        return LoadedChat(self._new_chat(opened), opened.flags.request_options(), opened.unanswered)
