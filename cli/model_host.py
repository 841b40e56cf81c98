"""The engine behind a conversation, and another one that takes its place once its model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import MlxchatError
from .failures import as_mlxchat_error, lines
from .loading import Loading
from .saved_chat import SavedChat
from .streams import Streams

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.engine import Engine


@dataclass(frozen=True)
class Start:
    """How a model is begun: its name, what loads it, and the conversation that goes on with it."""

    name: str
    engine: Callable[[], Engine]
    saved: SavedChat


class ModelHost:
    """One engine answers; another may be on its way. Used from the user's thread, models load on threads of their own.

    open_chat    opens a conversation on an engine
    tell         says a line, from any thread, prompt or no prompt
    give_up      ends the program with what left it without a model
    """

    def __init__(
        self,
        open_chat: Callable[[Engine, SavedChat], Chat],
        streams: Streams,
        tell: Callable[[str], None],
        give_up: Callable[[BaseException], None],
    ) -> None:
        self._open_chat = open_chat
        self._streams = streams
        self.tell = tell
        self._give_up = give_up
        self._loadings: list[Loading] = []

    def begin(self, start: Start) -> Callable[[], Chat]:
        """Load the first model; gives the chat, once there is one."""
        loading = Loading(start.engine, lambda engine: self._open_chat(engine, start.saved), self._give_up)
        self._loadings.append(loading)
        loading.start()
        return lambda: self._wait_for(loading, start.name)

    def open(self, saved: SavedChat) -> Chat:
        """Another conversation on the model that answers."""
        return self._open_chat(self._loadings[-1].engine(), saved)

    def switch(
        self, start: Start, before: Chat, room: Start | None, on_switched: Callable[[], None]
    ) -> Callable[[], Chat]:
        """Load another model. Gives its chat once it is there, or `before` where it can't be loaded, which is said.

        room          None: the model that answers now stays until the other one is there. Else there is no room for
                      both: it goes first, and this brings it back if need be
        on_switched   called before the new chat is first given, on the thread that asks for it
        """
        switch = _Switch(self, self._loadings[-1], start, before, room, on_switched)
        self._loadings.append(switch.loading)
        switch.loading.start()
        return switch.chat

    def close(self) -> None:
        """Close every engine. One that is still loading is waited for: MLX is not to be left in the middle."""
        for loading in self._loadings:
            loading.close()

    def _wait_for(self, loading: Loading, name: str) -> Chat:
        if loading.ready:
            return loading.chat()
        try:
            self._streams.transient(f"loading {name} …")
            return loading.chat()
        finally:
            self._streams.transient("")

    def _explain(self, error: BaseException) -> None:
        for line in lines(as_mlxchat_error(error)):
            self.tell(line)


class _Switch:
    """One model taking over from another."""

    def __init__(
        self,
        host: ModelHost,
        old: Loading,
        start: Start,
        before: Chat,
        room: Start | None,
        on_switched: Callable[[], None],
    ) -> None:
        self._host, self._old, self._start, self._room = host, old, start, room
        self._before, self._on_switched = before, on_switched
        self._came_back = self._is_waited_for = False
        self._settled: Chat | None = None
        self.loading = Loading(self._make, self._open, self._failed)

    # -- on the thread that loads ------------------------------------------------------------------------------

    def _make(self) -> Engine:
        if self._room is None:
            return self._start.engine()
        self._old.close()
        try:
            return self._start.engine()
        except MlxchatError as error:
            self._host._explain(error)
            self._host.tell(f"going back to {self._room.name}")
            self._came_back = True
            return self._room.engine()

    def _open(self, engine: Engine) -> Chat:
        start = self._room if self._came_back and self._room is not None else self._start
        chat = self._host._open_chat(engine, start.saved)
        self._old.close()
        return chat

    def _failed(self, error: BaseException) -> None:
        if self._room is not None:  # neither of them could be loaded
            self._host._give_up(error)
        elif not self._is_waited_for:
            self._host._explain(error)

    # -- on the user's thread ----------------------------------------------------------------------------------

    def chat(self) -> Chat:
        """The chat that goes on. Raises what loading raised if it is waited for: a message meant for another model."""
        if self._settled is not None:
            return self._settled
        if self.loading.failed and not self._is_waited_for:
            return self._stay()
        self._is_waited_for = True
        try:
            chat = self._host._wait_for(self.loading, self._start.name)
        except KeyboardInterrupt:
            self._is_waited_for = False
            raise
        except Exception:
            self._stay()
            raise
        if not self._came_back:
            self._on_switched()
        self._settled = chat
        return chat

    def _stay(self) -> Chat:
        self._host._loadings.remove(self.loading)
        self._settled = self._before
        return self._before
