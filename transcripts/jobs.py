"""The requests of a transcript in the order in which they run, and what the user adds for what a file leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engine.messages import ImagePart, Message, TextPart
from ..engine.messages import system as system_message
from ..engine.pictures import open_picture
from ..errors import MlxchatError
from .model import Conversation, ConversationKind, Request, Transcript, Usage

_NO_USAGE = Usage()
NO_IMAGE = "[image]"
"""What stands for a picture that the model can't see, or that isn't there."""


@dataclass(frozen=True)
class Job:
    """One request to replay.

    number         in the run, from 1; `turn` counts within its conversation
    parent, title  the conversation's
    transcript     the path of the transcript that it stands in
    lane           requests of one lane never run at once: the conversation that all of theirs were started from
    delay_ms       how long its tools took afterwards
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
    transcript: str = ""
    lane: str = ""
    delay_ms: int = 0


@dataclass(frozen=True)
class Supplied:
    """What the user adds: a system prompt and tools for requests that have none."""

    system: str | None = None
    tools: tuple[dict[str, Any], ...] = ()


def jobs_of(
    transcript: Transcript, supplied: Supplied, limit: int | None = None, *, pictures: bool = False
) -> list[Job]:
    """The first `limit` requests (None: all), in the order in which they were made.

    pictures    whether the model sees them: those that can be read stay, a text stands for the others
    """
    share, turns = _Shared(pictures), Counter[int]()
    parts = transcript.parts or (transcript,)
    paths = {id(conversation): part.path for part in parts for conversation in part.conversations}
    lanes = _lanes(transcript)
    jobs = []
    for number, (conversation, request) in enumerate(transcript.requests[:limit], 1):
        turns[id(conversation)] += 1
        job = _job(number, conversation, turns[id(conversation)], request, supplied, share)
        jobs.append(replace(job, transcript=paths[id(conversation)], lane=lanes[conversation.id]))
    return jobs


def _lanes(transcript: Transcript) -> dict[str, str]:
    """For each conversation the one that it, or whatever it was started from, was started from."""
    parents = {conversation.id: conversation.parent for conversation in transcript.conversations}
    lanes: dict[str, str] = {}
    for name in parents:
        top, above = name, parents[name]
        seen = {name}
        while above is not None and above in parents and above not in seen:
            seen.add(above)
            top, above = above, parents[above]
        lanes[name] = top
    return lanes


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
        delay_ms=request.delay_ms,
        images=sum(map(_pictures, messages)) - sum(map(_pictures, words[: len(messages)])),
    )


def _pictures(message: Message) -> int:
    return sum(isinstance(part, ImagePart) for part in message.content)


class _Shared:
    """Messages as the model can read them. One that a conversation's last request had too is the same object again.

    Formats that hold whole requests repeat every message, and what is known of a message is known by its identity.
    """

    def __init__(self, pictures: bool) -> None:
        self._pictures = pictures
        self._readable: dict[str, bool] = {}
        self._last: dict[str, list[Message]] = {}

    def of(self, conversation: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, in words where they hold what the model can't see."""
        last = self._last.get(conversation, [])
        found = [in_words(message, self._keeps) for message in messages]
        for index, (before, now) in enumerate(zip(last, found, strict=False)):
            if before == now:
                found[index] = before
        self._last[conversation] = found
        return tuple(found)

    def _keeps(self, part: ImagePart) -> bool:
        """Whether a picture stays: opened here once, so that a broken one doesn't end the replay halfway."""
        if not self._pictures:
            return False
        if part.source not in self._readable:
            try:
                open_picture(part.source)
                self._readable[part.source] = True
            except MlxchatError:
                self._readable[part.source] = False
        return self._readable[part.source]


def in_words(message: Message, keeps: Callable[[ImagePart], bool] = lambda part: False) -> Message:
    """The message with a text in place of each picture that isn't kept."""
    if not _pictures(message):
        return message
    lost = {id(part) for part in message.content if isinstance(part, ImagePart) and not keeps(part)}
    parts = (TextPart(NO_IMAGE) if id(part) in lost else part for part in message.content)
    return replace(message, content=tuple(parts)) if lost else message
