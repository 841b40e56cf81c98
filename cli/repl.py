"""`mlxchat` alone: the conversation at the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ..engine.events import Event
from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..engine.stats import RequestStats, total
from ..errors import MlxchatError
from .ahead import WorkAhead
from .attachments import Attachments
from .cache_lines import cache_lines
from .failures import lines
from .interrupts import stopping
from .plain_output import PlainOutput
from .repl_commands import Typed, help_lines, understand
from .repl_sessions import ReplSessions
from .stats_line import details, stats_line
from .streams import Streams
from .turn_result import follow

if TYPE_CHECKING:
    from ..engine.chat import Chat

LEAVE_WITHIN_S = 2.0


class Reader(Protocol):
    """Whatever the user types into."""

    def read(self, default: str = "") -> str:
        """One entry. Raises KeyboardInterrupt at Ctrl-C and EOFError at Ctrl-D."""

    @property
    def typed(self) -> str:
        """What stood there when `read` was interrupted."""


class Repl:
    """One conversation, turn after turn, until the user leaves. Text that wasn't answered comes back to the prompt."""

    def __init__(
        self,
        chat: Callable[[], Chat],
        options: RequestOptions,
        streams: Streams,
        output: PlainOutput,
        reader: Reader,
        attachments: Attachments,
        sessions: ReplSessions,
        clock: Callable[[], float] = time.monotonic,
        draft: str = "",
        ahead: WorkAhead | None = None,
    ) -> None:
        self._opened = chat
        self._options = options
        self._streams = streams
        self._output = output
        self._reader = reader
        self._attachments = attachments
        self._sessions = sessions
        self._clock = clock
        self._draft = draft
        self._ahead = ahead
        self._requests: list[RequestStats] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/stats": self._stats,
            "/cache": self._cache,
            "/retry": self._retry,
            "/undo": self._undo,
            "/image": self._image,
            "/detach": self._detach,
            "/sessions": lambda _: self._sessions.list(),
            "/load": self._load,
            "/rename": lambda name: self._sessions.rename(name),
            "/search": lambda words: self._sessions.search(words),
            "/markdown": lambda how: self._output.choose_markdown(how),
            "/clear": self._clear,
        }

    def run(self) -> int:
        """Read and answer until the user leaves. The exit code."""
        while True:
            try:
                return self._read_and_answer()
            except KeyboardInterrupt:  # pressed between two prompts, as a held key does: meant for one of them
                continue

    def _read_and_answer(self) -> int:
        interrupted_at = -LEAVE_WITHIN_S
        while True:
            draft, self._draft = self._draft, ""
            if self._ahead is not None:
                self._ahead.rest(self._attachments.files, bool(self._attachments.pictures))
            try:
                line = self._reader.read(draft)
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if self._reader.typed:
                    continue
                if self._clock() - interrupted_at < LEAVE_WITHIN_S:
                    return 0
                interrupted_at = self._clock()
                self._streams.note("(Ctrl-C once more, or Ctrl-D, to leave)")
                continue
            if line.strip() and self._handle(line):
                return 0

    def _handle(self, line: str) -> bool:
        """Do what `line` says; whether it says to leave."""
        try:
            typed = understand(line)
        except MlxchatError as error:
            self._explain(error)
            self._draft = line
            return False
        if typed.command == "/exit":
            return True
        try:
            if typed.command:
                self._command(typed, line)
            elif typed.text.strip():
                self._send(typed)
        except KeyboardInterrupt:  # while the model was still loading, or a picture was fetched
            self._draft = line
        return False

    def _command(self, typed: Typed, line: str) -> None:
        assert typed.command is not None
        try:
            self._commands[typed.command](typed.argument)
        except MlxchatError as error:
            self._explain(error)
            self._draft = line

    @property
    def _chat(self) -> Chat:
        """The conversation; waits for the model."""
        return self._opened()

    def _send(self, typed: Typed) -> None:
        chat = self._chat
        message = self._attachments.message(typed.text)
        if not self._turn(chat.ask(message, self._options)):
            self._take_back(message)

    def _turn(self, events: Iterator[Event]) -> bool:
        """Show one turn; whether an answer came of it that the chat has kept."""
        with stopping(self._chat, leave_on_second=False):
            result = follow(events, self._output)
        kept = any(message is result.message for message in self._chat.messages)
        if kept:
            self._output.turn(result)
            self._requests += result.requests
        else:
            self._output.drop_turn()
        if result.error:
            self._explain(result.error)
        elif result.finish_reason == "interrupted":
            self._streams.notice("(stopped; what was said is kept)" if kept else "(stopped before a word was said)")
        return kept

    def _take_back(self, message: Message) -> None:
        self._draft = self._attachments.take_back(message, self._streams.note)

    def _image(self, source: str) -> None:
        if source:
            staged = self._attachments.stage(source)
            self._streams.draw(staged.picture)
            self._streams.note(f"{staged} goes with your next message")
        elif self._attachments.names:
            for number, name in enumerate(self._attachments.names, 1):
                self._streams.note(f"{number}  {name}")
        else:
            self._streams.note("nothing goes with your next message; /image PATH or URL stages a picture")

    def _detach(self, which: str) -> None:
        for name in self._attachments.detach(which):
            self._streams.note(f"{name} stays here")

    def _load(self, which: str) -> None:
        loaded = self._sessions.load(which)
        chat = loaded.chat
        self._opened, self._options, self._requests = (lambda: chat), loaded.options, []
        self._attachments.clear()
        if loaded.unanswered is not None:
            self._take_back(loaded.unanswered)

    def _retry(self, _: str) -> None:
        if any(message.role == "user" for message in self._chat.messages):
            self._turn(self._chat.retry(self._options))
        else:
            self._streams.note("there is no message to answer again")

    def _undo(self, _: str) -> None:
        message = self._chat.undo()
        if message is None:
            self._streams.note("there is nothing to take back")
        else:
            self._take_back(message)

    def _clear(self, _: str) -> None:
        self._chat.clear()
        self._requests = []
        self._attachments.clear()
        self._streams.note("a new chat")

    def _help(self, _: str) -> None:
        for line in help_lines():
            self._streams.note(line)

    def _stats(self, _: str) -> None:
        if not self._requests:
            self._streams.note("no answer yet")
            return
        for line in (stats_line(self._requests[-1]), *details(self._requests[-1])):
            self._streams.note(line)
        if len(self._requests) > 1:
            sums = total(self._requests)
            self._streams.note(
                f"chat     {len(self._requests)} answers, prompts of {sums['prompt_tokens']:,} tokens, "
                f"{sums['cached_tokens']:,} of them reused"
            )

    def _cache(self, _: str) -> None:
        try:
            report = self._chat.cache_report()
        except MlxchatError as error:
            self._explain(error)
            return
        for line in cache_lines(report):
            self._streams.note(line)

    def _explain(self, error: MlxchatError) -> None:
        for line in lines(error):
            self._streams.note(line)
