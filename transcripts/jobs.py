"""The requests of a transcript in the order in which they run, and what the user adds for what a file leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engine.messages import ImagePart, Message, TextPart
from ..engine.messages import system as system_message
from .model import Conversation, ConversationKind, Request, Transcript, Usage

_NO_USAGE = Usage()
NO_IMAGE = "[image]"
"""What stands for a picture that a text model can't see."""


@dataclass(frozen=True)
class Job:
    """One request to replay.

    number         in the run, from 1; `turn` counts within its conversation
    parent, title  the conversation's
    images         pictures that a text stands for
    hash_ids       of traces without text, see `Request`
    """

    number: int
    conversation: str
    kind: ConversationKind
    turn: int
    line: int
    messages: tuple[Message, ...]
    answer: Message | None
    tools: tuple[dict[str, Any], ...] = ()
    usage: Usage = _NO_USAGE
    hidden_reasoning: bool = False
    parent: str | None = None
    title: str | None = None
    images: int = 0
    hash_ids: tuple[str, ...] = ()
    block_tokens: int = 0


@dataclass(frozen=True)
class Supplied:
    """What the user adds: a system prompt and tools for requests that have none."""

    system: str | None = None
    tools: tuple[dict[str, Any], ...] = ()


def jobs_of(transcript: Transcript, supplied: Supplied, limit: int | None = None) -> list[Job]:
    """The first `limit` requests (None: all), in the order in which they were made."""
    share, turns = _Shared(), Counter[int]()
    jobs = []
    for number, (conversation, request) in enumerate(transcript.requests[:limit], 1):
        turns[id(conversation)] += 1
        jobs.append(_job(number, conversation, turns[id(conversation)], request, supplied, share))
    return jobs


def _job(
    number: int, conversation: Conversation, turn: int, request: Request, supplied: Supplied, share: _Shared
) -> Job:
    messages = list(request.messages)
    if supplied.system is not None and messages and not any(message.role == "system" for message in messages):
        messages.insert(0, system_message(supplied.system))
    answer = [] if request.answer is None else [request.answer]
    words = share.of(conversation.id, [*messages, *answer])
    return Job(
        number=number,
        conversation=conversation.id,
        kind=conversation.kind,
        turn=turn,
        line=request.line,
        messages=words[: len(messages)],
        answer=words[-1] if answer else None,
        tools=request.tools or supplied.tools,
        usage=request.usage or _NO_USAGE,
        hidden_reasoning=request.hidden_reasoning,
        parent=conversation.parent,
        title=conversation.title,
        hash_ids=request.hash_ids,
        block_tokens=request.block_tokens,
        images=sum(isinstance(part, ImagePart) for message in messages for part in message.content),
    )


class _Shared:
    """Messages as text models can read them. One that a conversation's last request had too is the same object again.

    Formats that hold whole requests repeat every message, and what is known of a message is known by its identity.
    """

    def __init__(self) -> None:
        self._last: dict[str, list[Message]] = {}

    def of(self, conversation: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, in words."""
        last = self._last.get(conversation, [])
        found = [in_words(message) for message in messages]
        for index, (before, now) in enumerate(zip(last, found, strict=False)):
            if before == now:
                found[index] = before
        self._last[conversation] = found
        return tuple(found)


def in_words(message: Message) -> Message:
    """The message with a text in place of each picture."""
    if not any(isinstance(part, ImagePart) for part in message.content):
        return message
    parts = (TextPart(NO_IMAGE) if isinstance(part, ImagePart) else part for part in message.content)
    return replace(message, content=tuple(parts))
