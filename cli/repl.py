"""`mlxchat` alone: the conversation at the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ..engine.events import Event
from ..engine.messages import FilePart, Message, TextPart
from ..engine.options import RequestOptions
from ..engine.stats import RequestStats, total
from ..errors import MlxchatError
from .ahead import WorkAhead
from .cache_lines import cache_lines
from .echo import unechoed
from .engine_access import model_facts, new_chat, start_engine
from .failures import lines
from .input_sources import user_message
from .interrupts import stopping
from .loading import Loading
from .plain_output import PlainOutput
from .repl_commands import Typed, help_lines, understand
from .saved_chat import SavedChat
from .stats_line import details, stats_line
from .streams import Streams
from .turn_result import follow

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.engine import Engine

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
        files: Sequence[FilePart] = (),
        clock: Callable[[], float] = time.monotonic,
        draft: str = "",
        ahead: WorkAhead | None = None,
    ) -> None:
        self._opened = chat
        self._options = options
        self._streams = streams
        self._output = output
        self._reader = reader
        self._files = list(files)
        self._clock = clock
        self._draft = draft
        self._ahead = ahead
        self._requests: list[RequestStats] = []
        self._commands = {
            "/help": self._help,
            "/stats": self._stats,
            "/cache": self._cache,
            "/retry": self._retry,
            "/undo": self._undo,
            "/clear": self._clear,
        }

    def run(self) -> int:
        """Read and answer until the user leaves. The exit code."""
        interrupted_at = -LEAVE_WITHIN_S
        while True:
            draft, self._draft = self._draft, ""
            if self._ahead is not None:
                self._ahead.rest(self._files)
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
                self._commands[typed.command]()
            elif typed.text.strip():
                self._send(typed)
        except KeyboardInterrupt:  # while the model was still loading
            self._draft = line
        return False

    @property
    def _chat(self) -> Chat:
        """The conversation; waits for the model."""
        return self._opened()

    def _send(self, typed: Typed) -> None:
        message = user_message(typed.text, self._files)
        self._files = []
        if not self._turn(self._chat.ask(message, self._options)):
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
        self._draft = "\n".join(part.text for part in message.content if isinstance(part, TextPart))
        self._files = [part for part in message.content if isinstance(part, FilePart)]

    def _retry(self) -> None:
        if any(message.role == "user" for message in self._chat.messages):
            self._turn(self._chat.retry(self._options))
        else:
            self._streams.note("There is no message to answer again.")

    def _undo(self) -> None:
        message = self._chat.undo()
        if message is None:
            self._streams.note("There is nothing to take back.")
        else:
            self._take_back(message)

    def _clear(self) -> None:
        self._chat.clear()
        self._requests = []
        self._files = []
        self._streams.note("A new chat.")

    def _help(self) -> None:
        for line in help_lines():
            self._streams.note(line)

    def _stats(self) -> None:
        if not self._requests:
            self._streams.note("No answer yet.")
            return
        for line in (stats_line(self._requests[-1]), *details(self._requests[-1])):
            self._streams.note(line)
        if len(self._requests) > 1:
            sums = total(self._requests)
            self._streams.note(
                f"chat     {len(self._requests)} answers, prompts of {sums['prompt_tokens']:,} tokens, "
                f"{sums['cached_tokens']:,} of them reused"
            )

    def _cache(self) -> None:
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


def run_repl(saved: SavedChat, files: Sequence[FilePart], streams: Streams) -> int:
    """Greet, then chat until the user leaves; the model loads meanwhile. The exit code. Raises what loading raises."""
    from .line_reader import LineReader

    flags, options = saved.flags, saved.flags.request_options()
    facts = model_facts(flags.model_name)
    streams.note(f"{facts.name} · context {facts.context_limit:,} tokens · /help, Ctrl-D to leave")
    for part in files:
        streams.note(f"{part.name} goes with your first message.")
    ahead = None if flags.no_ahead else WorkAhead(options)
    reader = LineReader(streams.color, ahead.typed if ahead is not None else None)

    def notice(line: str) -> None:
        reader.above(lambda: streams.notice(line))

    def open_chat(engine: Engine) -> Chat:
        chat = new_chat(engine, saved.system, saved.history, saved.recorder)
        if ahead is not None:
            ahead.opened(chat)
        return chat

    loading = Loading(lambda: start_engine(flags.engine_options(), notice), open_chat, reader.give_up)
    loading.start()
    output = PlainOutput(streams, stream=not flags.no_stream, show_stats=True)
    draft = "" if saved.unanswered is None else saved.unanswered.text
    chat = _waiting(loading, facts.name, streams)
    try:
        with unechoed():
            return Repl(chat, options, streams, output, reader, files, draft=draft, ahead=ahead).run()
    finally:
        loading.close()


def _waiting(loading: Loading, name: str, streams: Streams) -> Callable[[], Chat]:
    """Gives the chat; says what is waited for while there is none."""

    def chat() -> Chat:
        if loading.ready:
            return loading.chat()
        try:
            streams.transient(f"loading {name} …")
            return loading.chat()
        finally:
            streams.transient("")

    return chat
