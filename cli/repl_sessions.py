"""Saved chats from within a conversation: list, search, name, and go on with another one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.conversation_tree import ConversationTree
from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..errors import DataError, InputError, UsageError
from ..transcripts.session_export import export, export_unsaved
from ..transcripts.session_file import read_session
from ..transcripts.session_recorder import SessionRecorder
from ..transcripts.session_search import search
from ..transcripts.session_store import SessionStore
from ..transcripts.writing import format_for, write_file
from .chat_flags import ChatFlags
from .chat_settings import settings_of
from .failures import as_mlxchat_error, lines
from .saved_chat import SavedChat, open_chat
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

    @property
    def saves(self) -> bool:
        """Whether anything of this chat is kept on disk."""
        return self._current.recorder is not None

    @property
    def flags(self) -> ChatFlags:
        """How the current chat was begun."""
        return self._current.flags

    def keep(self, options: RequestOptions) -> None:
        """From here on the chat is asked like this; one that goes on later is too."""
        recorder = self._current.recorder
        if recorder is not None:
            recorder.configure(replace(recorder.settings, sampling=options.sampling, thinking=options.thinking))

    def carried(self, chat: Chat, flags: ChatFlags) -> SavedChat:
        """The chat as it stands, for the model of `flags` to go on with."""
        history = tuple(message for message in chat.messages if message.role != "system")
        tree = chat.tree.for_another(settings_of(flags, None).model)
        return replace(self._current, flags=flags, system=chat.system, history=history, day=chat.day, tree=tree)

    def switched(self, flags: ChatFlags) -> None:
        """From here on another model answers: the one of `flags`."""
        self._current = replace(self._current, flags=flags)
        recorder, fresh = self._current.recorder, settings_of(flags, None)
        if recorder is not None:
            recorder.configure(
                replace(recorder.settings, model=fresh.model, template=fresh.template, adapter=fresh.adapter)
            )

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
            raise UsageError("this chat isn't saved", "it was begun with --no-save or /private")
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
        try:
            path = self._store.find(which)
        except InputError as error:  # its hint is a command for the shell
            raise InputError(error.message, "/sessions lists them") from None
        if path.stem == self._current.session_id:
            raise UsageError(f"{path.stem} is this chat", "/sessions lists the others")
        wanted, here = read_session(path).settings, settings_of(self._current.flags, None)
        if (wanted.model, wanted.template, wanted.adapter) != (here.model, here.template, here.adapter):
            other = "another template" if wanted.template != here.template else "another adapter"
            of = f"the model {wanted.model}" if wanted.model != here.model else other
            mend = f"/model {wanted.model} first, or leave, then" if wanted.model != here.model else "leave, then"
            raise UsageError(f"{path.stem} is a chat with {of}", f"{mend}: mlxchat -r {path.stem}")
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
        return self._go_on(opened, replace(opened.flags.request_options(), whole_reply=True))

    def fork(self, chat: Chat, options: RequestOptions) -> LoadedChat:
        """Leave this chat as it is and go on in a copy. Raises UsageError if there is nothing to copy."""
        recorder, before = self._current.recorder, self._current.session_id
        if recorder is None:
            raise UsageError("this chat isn't saved, so there is nothing to copy", "/tree keeps its branches in reach")
        if not chat.turns:
            raise UsageError("nothing is said yet that could be copied", "say something first")
        tree = chat.tree.trunk(chat.messages)
        history = tuple(message for message in chat.messages if message.role != "system")
        copy = SavedChat(self.flags, chat.system, history, recorder.fork(), None, chat.day, tree)
        self._streams.note(f"going on in the copy {copy.session_id}; {before} stays as it is")
        return self._go_on(copy, options)

    def private(self, chat: Chat, options: RequestOptions) -> LoadedChat:
        """Begin a chat of which nothing is kept on disk. Raises UsageError if that can't be, or is so already."""
        if not self.saves:
            raise UsageError("nothing of this chat is saved", "/new begins another")
        if self.flags.cache_persist:
            raise UsageError("--cache-persist keeps the KV cache of every chat", "leave, then: mlxchat --no-save")
        flags = replace(self.flags, no_save=True)
        self._streams.note("a new chat, of which nothing is saved; /new begins one that is")
        return self._go_on(SavedChat(flags, chat.system, tree=ConversationTree(chat.tree.model)), options)

    def fresh(self, chat: Chat, options: RequestOptions) -> LoadedChat | None:
        """A new chat that is saved, after a private one; None where the chat at hand can begin anew itself."""
        if self.saves or self._typed.no_save:
            return None
        flags = replace(self.flags, no_save=False)
        settings = replace(settings_of(flags, chat.system), sampling=options.sampling, thinking=options.thinking)
        recorder = SessionRecorder(self._store.folder, settings, self._streams.notice)
        tree = ConversationTree(chat.tree.model)
        return self._go_on(SavedChat(flags, chat.system, recorder=recorder, tree=tree), options)

    def _go_on(self, opened: SavedChat, options: RequestOptions) -> LoadedChat:
        self._current.close()
        self._current = opened
        return LoadedChat(self._new_chat(opened), options, opened.unanswered)

    def export(self, chat: Chat, name: str) -> None:
        """Write the conversation to a file, in the format that its name asks for.

        Raises UsageError if it names none or is there already, DataError if nothing was said, OutputError.
        """
        form, path = format_for(name), Path(name).expanduser()
        if form is None:
            raise UsageError(
                f"no format is written to {name}" if name else "/export needs a file's name",
                "/export chat.md, chat.json or chat.sts.jsonl",
            )
        if path.exists():
            raise UsageError(f"{name} is there already", "name another")
        saved = self._store.folder / f"{self._current.session_id}.jsonl"
        if self.saves and saved.exists():
            if not chat.messages:
                raise DataError("nothing is said on this branch", "/tree shows the others")
            text = export(read_session(saved, unfinished=False), form)
        else:
            text = export_unsaved(chat.tree.grow(chat.messages), form)
        write_file(path, iter([text]))
        self._streams.note(f"written to {name}")
