"""`mlxchat` alone: the conversation at the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ..engine.events import Event
from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..errors import ContextExceeded, MlxchatError
from .ahead import WorkAhead
from .attachments import Attachments
from .context_full import ways_out
from .interrupts import stopping
from .plain_output import PlainOutput
from .repl_branches import ReplBranches
from .repl_chats import ReplChats
from .repl_commands import Typed, understand
from .repl_inputs import ReplInputs
from .repl_looks import ReplLooks
from .repl_models import ReplModels
from .repl_sessions import ReplSessions
from .repl_settings import ReplSettings
from .repl_state import Command, ReplState
from .repl_tools import ReplTools
from .streams import Streams
from .tool_setup import RunTools
from .turn_result import follow

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from .model_host import ModelHost

LEAVE_WITHIN_S = 2.0


class Reader(Protocol):
    """Whatever the user types into."""

    multiline: bool
    private: bool

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
        host: ModelHost | None = None,
        tools: RunTools | None = None,
    ) -> None:
        self._state = state = ReplState(chat, options, streams, attachments, draft, ahead=ahead)
        self._output = output
        self._reader = reader
        self._clock = clock
        self._answered = False
        self._loop = None if tools is None else tools.loop
        groups = (
            ReplLooks(state),
            ReplBranches(state),
            ReplChats(state, sessions, reader),
            ReplInputs(state, reader),
            ReplSettings(state, output, sessions.keep),
            ReplModels(state, sessions, host),
            ReplTools(tools or RunTools(), streams, state.say_cost_if_spoken, state.count_tokens),
        )
        self.commands: dict[str, Command] = {"/retry": self._retry, "/markdown": output.choose_markdown}
        for group in groups:
            self.commands |= group.commands

    def run(self) -> int:
        """Read and answer until the user leaves. The exit code."""
        while True:
            try:
                return self._read_and_answer()
            except KeyboardInterrupt:  # pressed between two prompts, as a held key does: meant for one of them
                continue

    def _read_and_answer(self) -> int:
        state, interrupted_at = self._state, -LEAVE_WITHIN_S
        while True:
            draft, state.draft = state.draft, ""
            if state.ahead is not None:
                state.ahead.rest(state.attachments.files, bool(state.attachments.pictures))
            try:
                line = self._reader.read(draft)
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if self._reader.typed:
                    state.held = ""
                    continue
                if self._clock() - interrupted_at < LEAVE_WITHIN_S:
                    return 0
                interrupted_at = self._clock()
                state.note("(Ctrl-C once more, or Ctrl-D, to leave)")
                continue
            if line.strip() and self._handle(line):
                return 0

    def _handle(self, line: str) -> bool:
        """Do what `line` says; whether it says to leave."""
        state, self._answered = self._state, False
        try:
            typed = understand(line)
            if typed.command == "/exit":
                return True
            if typed.command:
                self.commands[typed.command](typed.argument)
                state.draft = state.draft or state.held
            elif typed.text.strip():
                self._send(typed)
        except MlxchatError as error:
            state.explain(error)
            state.draft = line
        except KeyboardInterrupt:  # while the model was still loading, or a picture was fetched; or behind an answer
            if not self._answered:
                state.draft = line
        return False

    def _send(self, typed: Typed) -> None:
        state = self._state
        chat, state.held = state.chat, ""
        message = state.attachments.message(typed.text)
        error = self._turn(chat.ask(message, state.options))
        if self._is_kept(message):
            return
        state.offer(message)
        if isinstance(error, ContextExceeded):
            state.held = state.draft
            for line in ways_out(chat, message, state.options):
                state.note(line)

    def _is_kept(self, message: Message) -> bool:
        """Whether the chat holds it."""
        return any(message is one for one in self._state.chat.messages)

    def _turn(self, events: Iterator[Event]) -> MlxchatError | None:
        """Show one turn, whose answer the chat may keep or not; what it failed with."""
        state, loop = self._state, self._loop
        if loop is not None:
            events = loop.follow(state.chat, events, state.options)
        with stopping(loop or state.chat, leave_on_second=False):
            result = follow(events, self._output)
            kept = self._answered = self._is_kept(result.message)
            if kept:
                self._output.turn(result)
                state.requests += result.requests
            else:
                self._output.drop_turn()
        if result.error:
            state.explain(result.error)
        elif result.finish_reason == "interrupted":
            state.streams.notice("(stopped; what was said is kept)" if kept else "(stopped before a word was said)")
        return result.error

    def _retry(self, _: str) -> None:
        if self._state.chat.turns:
            self._turn(self._state.chat.retry(self._state.options))
        else:
            self._state.note("there is no message to answer again")
