"""Who may watch a conversation grow, so that it can be saved. The engine says what happened and waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .events import ReasoningDelta, TextDelta
from .messages import Message
from .stats import RequestStats


class Recorder(Protocol):
    """Told by a Chat, on the thread that uses it, before the caller sees what happened. None of this may raise.

    `index` and `length` count the chat's messages, its system message included.
    """

    @property
    def session_id(self) -> str | None:
        """Names the conversation wherever something of it is kept; None: it has no lasting name."""

    def asked(self, index: int, message: Message) -> None:
        """`message` now stands at `index` and goes to the model; what stood from there on is another branch."""

    def heard(self, index: int, event: ReasoningDelta | TextDelta) -> None:
        """More words of the answer that will stand at `index`."""

    def answered(self, index: int, message: Message, stats: RequestStats) -> None:
        """The answer at `index` is over, whole or partial, and kept."""

    def stands(self, length: int) -> None:
        """The conversation is its first `length` messages; the rest, and words of an open answer, are a branch."""

    def moved(self, messages: Sequence[Message]) -> None:
        """The conversation is `messages` now: another branch, or one that is to be made of messages said before."""

    def cleared(self) -> None:
        """A new conversation begins."""


class Unrecorded:
    """A Recorder that keeps nothing."""

    session_id: str | None = None

    def asked(self, index: int, message: Message) -> None:
        """Nothing."""

    def heard(self, index: int, event: ReasoningDelta | TextDelta) -> None:
        """Nothing."""

    def answered(self, index: int, message: Message, stats: RequestStats) -> None:
        """Nothing."""

    def stands(self, length: int) -> None:
        """Nothing."""

    def moved(self, messages: Sequence[Message]) -> None:
        """Nothing."""

    def cleared(self) -> None:
        """Nothing."""
