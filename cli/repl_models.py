"""Another model in the middle of a chat, and which there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine.vision_kind import sees_no_pictures
from ..errors import ModelNotFound, UsageError
from .chat_flags import ChatFlags
from .engine_access import model_facts, start_engine
from .input_sources import Stdin
from .model_choice import ensure_model
from .model_host import ModelHost, Start
from .pictures import pictures_in, sees_pictures
from .repl_sessions import ReplSessions
from .repl_state import Command, ReplState
from .text_table import aligned

if TYPE_CHECKING:
    from ..engine.chat import Chat


class ReplModels:
    """The commands about models. `host` None: there is nobody to load another one."""

    def __init__(self, state: ReplState, sessions: ReplSessions, host: ModelHost | None) -> None:
        self._state = state
        self._sessions = sessions
        self._host = host

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {"/model": self._model, "/models": self._models}

    def _model(self, name: str) -> None:
        """Go on with another model: nothing of the one at hand changes before the other is known to be usable."""
        state, flags = self._state, self._sessions.flags
        if not name:
            state.note(f"{flags.model_name}; /model NAME goes on with another, /models lists them")
            return
        chat = state.chat
        flags = self._sessions.flags  # a switch before this one may have been settled only now
        if self._host is None or name == flags.model_name:
            raise UsageError(f"{name} is the model of this chat", "/models lists others")
        try:
            ensure_model(name, offline=flags.offline, yes=flags.yes, streams=state.streams, stdin=Stdin(), by_key=True)
        except ModelNotFound as error:  # its hint is a command for the shell, or a flag
            raise ModelNotFound(error.message, "/models lists those on this machine") from None
        facts, sees = model_facts(name), sees_pictures(name, flags.offline)
        if not sees and pictures_in(chat.messages):
            raise sees_no_pictures(name, "choose one with vision, or begin a chat without pictures: /new")
        new = replace(flags, model=name, template=None, adapter=None)  # those were made for the one at hand
        room = None if fits_beside(name) else self._start(flags, chat)

        def switched() -> None:
            self._sessions.switched(new)
            state.attachments.use(name, sees)
            state.use(state.options)

        state.opened = self._host.switch(self._start(new, chat), chat, room, switched)
        state.note(f"{facts.name} · {facts.context_words} · goes on with this chat, once it is loaded")

    def _start(self, flags: ChatFlags, chat: Chat) -> Start:
        host, options = self._host, flags.engine_options()
        assert host is not None
        return Start(flags.model_name, lambda: start_engine(options, host.tell), self._sessions.carried(chat, flags))

    def _models(self, _: str) -> None:
        for line in model_lines(self._sessions.flags.model_name):
            self._state.note(line)


def fits_beside(name: str) -> bool:
    """Whether the model fits into what memory is free now, with the one that answers still there."""
    from ..engine.catalog import info

    return info(name).fits


def model_lines(current: str) -> list[str]:
    """One line per model on this machine, the one of this chat marked."""
    from ..engine.aliases import size_text
    from ..engine.catalog import list_models

    found = list_models()
    rows = []
    for entry in found:
        what = entry.problem or f"{entry.weights}, {size_text(entry.disk_bytes)}, context {entry.context_limit:,}"
        rows.append((f"{'*' if entry.name == current else ' '} {entry.name}", what))
    return list(aligned(rows)) or ["there is no model on this machine yet"]
