"""Begins a conversation at the terminal: the prompt at once, the model behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .ahead import WorkAhead
from .attachments import Attachments
from .chat_flags import ChatFlags
from .engine_access import model_facts, new_chat, start_engine
from .loading import Loading
from .people_output import people_output
from .repl import Repl
from .repl_sessions import ReplSessions
from .saved_chat import SavedChat
from .streams import Streams
from .typed_ahead import TypedAhead

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.engine import Engine


def run_repl(typed: ChatFlags, saved: SavedChat, attachments: Attachments, streams: Streams, draft: str = "") -> int:
    """Greet, then chat until the user leaves; the model loads meanwhile. The exit code. Raises what loading raises.

    typed   the flags as they were given, before a saved chat filled them in
    draft   stands at the first prompt
    """
    from .line_reader import LineReader

    flags, options = saved.flags, saved.flags.request_options()
    facts = model_facts(flags.model_name)
    _greet(facts.name, facts.context_limit, attachments, streams)
    ahead = None if flags.no_ahead else WorkAhead(options)
    keys = TypedAhead(streams.side)
    keys.gather()
    output = people_output(flags, streams, show_stats=True, keys=keys)
    reader = LineReader(streams.color, ahead.typed if ahead is not None else None, output.print_reasoning, keys)

    def notice(line: str) -> None:
        reader.above(lambda: streams.notice(line))

    def open_chat(engine: Engine, saved: SavedChat = saved) -> Chat:
        chat = new_chat(engine, saved.system, saved.history, saved.recorder, saved.day)
        if ahead is not None:
            ahead.opened(chat, saved.flags.request_options())
        return chat

    loading = Loading(lambda: start_engine(flags.engine_options(), notice), open_chat, reader.give_up)
    loading.start()
    chat = _waiting(loading, facts.name, streams)
    sessions = ReplSessions(typed, saved, lambda other: open_chat(loading.engine(), other), streams)
    repl = Repl(chat, options, streams, output, reader, attachments, sessions, draft=draft, ahead=ahead)
    try:
        code = repl.run()
    finally:
        loading.close()
        sessions.close()
    return sessions.exit_code(code)


def _greet(name: str, context_limit: int, attachments: Attachments, streams: Streams) -> None:
    streams.note(f"{name} · context {context_limit:,} tokens · /help, Ctrl-D to leave")
    for staged in attachments.pictures:
        streams.draw(staged.picture)
    for attached in attachments.names:
        streams.note(f"{attached} goes with your first message")


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
