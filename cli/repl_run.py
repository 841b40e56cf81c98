"""Begins a conversation at the terminal: the prompt at once, the model behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .ahead import WorkAhead
from .attachments import Attachments
from .chat_flags import ChatFlags
from .engine_access import ModelFacts, model_facts, new_chat, start_engine
from .model_host import ModelHost, Start
from .people_output import people_output
from .repl import Repl
from .repl_sessions import ReplSessions
from .saved_chat import SavedChat
from .streams import Streams
from .tool_setup import RunTools, ToolFiles
from .typed_ahead import TypedAhead

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.engine import Engine


def run_repl(
    typed: ChatFlags,
    saved: SavedChat,
    attachments: Attachments,
    streams: Streams,
    draft: str = "",
    tool_files: ToolFiles | None = None,
) -> int:
    """Greet, then chat until the user leaves; the model loads meanwhile. The exit code. Raises what loading raises.

    typed   the flags as they were given, before a saved chat filled them in
    draft   stands at the first prompt
    """
    from .line_reader import LineReader

    flags = saved.flags
    options = replace(flags.request_options(), whole_reply=True)
    facts = model_facts(flags.model_name)
    _greet(facts, attachments, streams)
    ahead = None if flags.no_ahead else WorkAhead(options)
    keys = TypedAhead(streams.side)
    keys.gather()
    output = people_output(flags, streams, show_stats=True, keys=keys)
    reader = LineReader(streams.color, ahead.typed if ahead is not None else None, output.print_reasoning, keys)

    def notice(line: str) -> None:
        reader.above(lambda: streams.notice(line))

    tools = RunTools() if tool_files is None else tool_files.open(streams, asks=True, tell=notice)

    def open_chat(engine: Engine, saved: SavedChat) -> Chat:
        tools.settle(engine.info, notice)
        chat = new_chat(engine, saved.system, saved.history, saved.recorder, saved.day, tools.schemas, tree=saved.tree)
        if ahead is not None:
            ahead.opened(chat, saved.flags.request_options())
        return chat

    host = ModelHost(open_chat, streams, notice, reader.give_up)
    chat = host.begin(Start(facts.name, lambda: start_engine(flags.engine_options(), notice), saved))
    sessions = ReplSessions(typed, saved, host.open, streams)
    reader.private = not sessions.saves
    repl = Repl(
        chat,
        options,
        streams,
        output,
        reader,
        attachments,
        sessions,
        draft=draft,
        ahead=ahead,
        host=host,
        tools=tools,
    )
    try:
        code = repl.run()
    finally:
        host.close()
        tools.close()
        sessions.close()
    return sessions.exit_code(code)


def _greet(facts: ModelFacts, attachments: Attachments, streams: Streams) -> None:
    streams.note(f"{facts.name} · {facts.context_words} · /help, Ctrl-D to leave")
    for staged in attachments.pictures:
        streams.draw(staged.picture)
    for attached in attachments.names:
        streams.note(f"{attached} goes with your first message")
