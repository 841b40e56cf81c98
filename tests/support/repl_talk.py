"""A conversation at the prompt without a terminal: its lines come from a list, its chats are saved below a folder."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlxchat.cli.attachments import Attachments
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.plain_output import PlainOutput
from mlxchat.cli.repl import Repl
from mlxchat.cli.repl_sessions import ReplSessions
from mlxchat.cli.saved_chat import SavedChat, open_chat
from mlxchat.cli.streams import Streams
from mlxchat.engine.messages import Message
from mlxchat.transcripts.session_file import SavedSession, read_session
from support.fake_engine import FakeChat, FakeEngine

Step = str | Callable[[], str]


class Typist:
    """Types lines, then Ctrl-D. A step that is no text is called when its line is asked for, and gives it."""

    def __init__(self, lines: Sequence[Step]) -> None:
        self.lines = list(lines)
        self.drafts: list[str] = []
        self.typed = ""
        self.multiline = self.private = False

    def read(self, default: str = "") -> str:
        self.drafts.append(default)
        if not self.lines:
            raise EOFError
        step = self.lines.pop(0)
        return step if isinstance(step, str) else step()


class Conversation:
    """A whole run of the prompt on the fake engine, over when it is made."""

    def __init__(
        self, folder: Path, *lines: Step, flags: ChatFlags | None = None, system: str | None = None, host: Any = None
    ) -> None:
        flags = flags or ChatFlags(model="fake")
        self.sessions = folder / "sessions"
        self.out, self.err = io.StringIO(), io.StringIO()
        streams = Streams("never", stdout=self.out, stderr=self.err)
        saved = open_chat(flags, system, streams)
        self.first = saved.session_id or ""
        self.chats = [self._chat(saved)]
        held = ReplSessions(flags, saved, self._new, streams)
        self.typist = Typist(lines)
        self.attachments = Attachments(model="fake", sees=True)
        repl: Any = Repl
        options = saved.flags.request_options()
        opened = lambda: self.chats[0]  # noqa: E731
        output = PlainOutput(streams)
        try:
            self.repl = repl(opened, options, streams, output, self.typist, self.attachments, held, host=host)
            self.repl.run()
            self.last = held._current
        finally:
            held.close()
        self.code = held.exit_code(0)

    def _chat(self, saved: SavedChat) -> FakeChat:
        return FakeChat(FakeEngine(), saved.system, saved.history, saved.recorder, saved.day, tree=saved.tree)

    def _new(self, saved: SavedChat) -> Any:
        self.chats.append(self._chat(saved))
        return self.chats[-1]

    def read(self, session_id: str) -> SavedSession:
        return read_session(self.sessions / f"{session_id}.jsonl")

    @property
    def said(self) -> str:
        """What was told on stderr."""
        return self.err.getvalue()

    @property
    def chat(self) -> FakeChat:
        """The one it ended in."""
        return self.chats[-1]

    @property
    def messages(self) -> list[str]:
        """Who said what in it."""
        return short(self.chat.messages)


def short(messages: Sequence[Message]) -> list[str]:
    """`u:words` for each."""
    return [f"{message.role[0]}:{message.text}" for message in messages]


def kept(session: SavedSession) -> list[str]:
    """The same of the branch that a session stands on."""
    return short([entry.message for entry in session.conversation])


def everything(session: SavedSession) -> list[str]:
    """The same of every message in it."""
    return short([entry.message for entry in session.entries])
