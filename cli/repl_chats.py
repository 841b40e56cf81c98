"""Going from one chat to another: new ones, copies, saved ones, private ones; and what is done with the saved."""

from __future__ import annotations

from typing import Protocol

from .repl_sessions import LoadedChat, ReplSessions
from .repl_state import Command, ReplState


class History(Protocol):
    """Where lines are typed, and kept for later runs."""

    private: bool
    """Whether what is typed stays off the disk."""


class ReplChats:
    """The commands about whole chats."""

    def __init__(self, state: ReplState, sessions: ReplSessions, history: History) -> None:
        self._state = state
        self._sessions = sessions
        self._history = history

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {
            "/new": self._new,
            "/fork": lambda _: self._go_on(self._sessions.fork(self._state.chat, self._state.options)),
            "/private": self._private,
            "/sessions": lambda _: self._sessions.list(),
            "/load": self._load,
            "/rename": self._sessions.rename,
            "/search": self._sessions.search,
            "/export": lambda name: self._sessions.export(self._state.chat, name),
        }

    def _new(self, _: str) -> None:
        state = self._state
        fresh = self._sessions.fresh(state.chat, state.options)
        if fresh is not None:
            self._go_on(fresh)
        else:
            state.chat.clear()
            state.requests = []
            if not state.held:
                state.attachments.clear()
        state.note("a new chat")

    def _load(self, which: str) -> None:
        self._state.settle()  # a model on its way is the one that the other chat goes on with
        self._go_on(self._sessions.load(which))

    def _private(self, _: str) -> None:
        self._go_on(self._sessions.private(self._state.chat, self._state.options))

    def _go_on(self, loaded: LoadedChat) -> None:
        self._history.private = not self._sessions.saves
        self._state.go_on_with(loaded.chat, loaded.options)
        if loaded.unanswered is not None:
            self._state.offer(loaded.unanswered)
