"""What the engine thread tells whoever asked: one small frozen object per thing that happened."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import MlxchatError
from .messages import Message, ToolCall
from .stats import FinishReason, RequestStats
from .tools.tool import ToolResult


@dataclass(frozen=True)
class PrefillProgress:
    """`done` of `total` prompt tokens are in the cache; the first `cached` of them were reused."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True)
class ReasoningDelta:
    """More reasoning text. May split a word, never a character. `tokens` of reasoning so far, this included."""

    text: str
    tokens: int = 0


@dataclass(frozen=True)
class TextDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class ToolCallDone:
    """The model finished writing one tool call."""

    call: ToolCall


@dataclass(frozen=True)
class ToolStarted:
    """A call was allowed, and runs now."""

    call: ToolCall


@dataclass(frozen=True)
class ToolResultDone:
    """What came of a call is in the conversation."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True)
class StepDone:
    """A request ended with calls, they were answered, and the turn goes on with the next request."""

    message: Message
    stats: RequestStats


@dataclass(frozen=True)
class Notice:
    """One line for the user that is no part of the answer (reuse off, cache trouble)."""

    text: str


@dataclass(frozen=True)
class TurnDone:
    """The request ended. `message` is the assistant's, partial if `finish_reason` is "interrupted" or "length"."""

    message: Message
    finish_reason: FinishReason
    stats: RequestStats


@dataclass(frozen=True)
class TurnFailed:
    """The request ended without an answer; `partial` is what had been said."""

    error: MlxchatError
    partial: str


Event = (
    PrefillProgress
    | ReasoningDelta
    | TextDelta
    | ToolCallDone
    | ToolStarted
    | ToolResultDone
    | StepDone
    | Notice
    | TurnDone
    | TurnFailed
)
