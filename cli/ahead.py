"""When to work ahead: after an answer, while the user reads, and while they type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..engine.messages import FilePart, Message
from ..engine.options import RequestOptions
from ..errors import MlxchatError
from .input_sources import user_message
from .repl_commands import understand

if TYPE_CHECKING:
    from ..engine.ahead import AheadRequest

LEAST_TOKENS = 8  # settled words waiting, unless typing pauses
LEAST_BATTERY = 30  # percent; below it only a machine on mains works ahead


class Preparing(Protocol):
    """A chat that can get ready for its next message."""

    def prepare(self, options: RequestOptions, draft: Message | None = None, least: int = 1) -> AheadRequest:
        """Prefill what the next prompt will begin with."""


class WorkAhead:
    """Tells the chat what to prefill while nobody waits for it. Does nothing on a battery that runs low."""

    def __init__(self, options: RequestOptions, spare: Callable[[], bool] | None = None) -> None:
        self._chat: Preparing | None = None
        self._options = options
        self._spare = spare or power_to_spare
        self._on = False
        self._files: Sequence[FilePart] = ()
        self._pictures = False

    def opened(self, chat: Preparing, options: RequestOptions | None = None) -> None:
        """The model is loaded: what any first message will need can be prefilled. Until then there is nothing to do.

        options     those of this chat, if they are others than the first one's
        """
        self._options = options or self._options
        if self._on or self._spare():
            chat.prepare(self._options)
        self._chat = chat

    def use(self, options: RequestOptions) -> None:
        """The next message is asked like this."""
        self._options = options

    def rest(self, files: Sequence[FilePart] = (), pictures: bool = False) -> None:
        """The prompt is up, nothing is typed yet; `files` go with the next message.

        pictures    so do some, before its words, which then have to wait for them
        """
        self._on, self._files, self._pictures = self._spare(), files, pictures
        if self._on and self._chat is not None:
            self._chat.prepare(self._options)

    def typed(self, text: str, paused: bool) -> None:
        """The line now reads `text`. Worth a look where a word has ended, or when nothing was typed for a while."""
        if self._chat is None or not self._on or self._pictures or not (paused or text[-1:].isspace()):
            return
        words = sendable(text)
        if words is not None:
            self._chat.prepare(self._options, user_message(words, self._files), 1 if paused else LEAST_TOKENS)


def sendable(text: str) -> str | None:
    """The words of an unfinished line that would go to the model, the space behind them kept; None for a command."""
    if text.lstrip()[:1] in ("", "/", '"'):  # a command, or a block whose end isn't there yet
        return None
    try:
        typed = understand(text)
    except MlxchatError:
        return None
    return None if typed.command else text.lstrip()


def power_to_spare() -> bool:
    """Whether the machine runs on mains, or its battery is well charged."""
    import psutil

    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is None or bool(battery.power_plugged) or battery.percent >= LEAST_BATTERY
