"""The model that loads while the first message is typed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.engine import Engine


class Loading:
    """Loads on a thread of its own. `make` starts the engine, `open_chat` opens the conversation on it.

    on_failure is called from that thread with what loading raised, which `chat` raises too.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        open_chat: Callable[[Engine], Chat],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._made: Future[tuple[Engine, Chat]] = Future()
        self._make, self._open_chat, self._on_failure = make, open_chat, on_failure
        self._thread = threading.Thread(target=self._load, name="loading", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether the chat is there."""
        return self._made.done() and self._made.exception() is None

    @property
    def failed(self) -> bool:
        """Whether there will be none."""
        return self._made.done() and self._made.exception() is not None

    def chat(self) -> Chat:
        """The conversation, once there is one. Raises what loading raised, and KeyboardInterrupt."""
        return self._made.result()[1]

    def engine(self) -> Engine:
        """The engine, once there is one. Raises as `chat` does."""
        return self._made.result()[0]

    def close(self) -> None:
        """Close the engine; one that is still loading is waited for: MLX is not to be left in the middle."""
        self._thread.join()
        if self.ready:
            self._made.result()[0].close()

    def _load(self) -> None:
        try:
            engine = self._make()
        except BaseException as error:
            self._made.set_exception(error)
            self._on_failure(error)
            return
        try:
            self._made.set_result((engine, self._open_chat(engine)))
        except BaseException as error:
            engine.close()
            self._made.set_exception(error)
            self._on_failure(error)
