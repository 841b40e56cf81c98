"""What every transcript format is read into: conversations of requests, and what could not be read.

A *request* is one full prompt and the answer that was recorded for it. Some formats record requests (replay exactly
those); others record a conversation, where each assistant message is one request on all before it. Plain data: no MLX,
no tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from ..engine.messages import Message

ConversationKind = Literal["main", "subagent", "side"]


@dataclass(frozen=True)
class Usage:
    """Token counts as the provider recorded them; None where it didn't."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True)
class Entry:
    """One message as it stands in a file.

    line               1-based line (or 1-based index in a JSON array) where it begins
    id, parent_id      of formats that keep a tree
    hidden_reasoning   the format says that there was reasoning, but not what it was (encrypted, summarised)
    extra              fields the format had beyond these, kept for lossless export
    """

    message: Message
    line: int
    id: str | None = None
    parent_id: str | None = None
    time: str | None = None
    model: str | None = None
    usage: Usage | None = None
    hidden_reasoning: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One prompt to replay.

    messages     the full prompt, in order; answer: what was recorded for it, None if the file ends before one
    line         where the answer (or the request) begins in the file
    delay_ms     recorded or simulated pause after it, for tools to run
    hash_ids     of traces without text: one name per block of `block_tokens` prompt tokens, equal where the blocks are
                 equal. `messages` is empty then, usage has the lengths, and a replay makes up the ids
    """

    messages: tuple[Message, ...]
    answer: Message | None
    line: int
    tools: tuple[dict[str, Any], ...] = ()
    usage: Usage | None = None
    model: str | None = None
    time: str | None = None
    max_tokens: int | None = None
    delay_ms: int = 0
    hidden_reasoning: bool = False
    hash_ids: tuple[str, ...] = ()
    block_tokens: int = 0

    @classmethod
    def of(cls, entry: Entry, before: tuple[Message, ...], tools: tuple[dict[str, Any], ...] = ()) -> Request:
        """The request that an assistant's entry answers, with what its file says of it. `before`: the prompt."""
        return cls(
            messages=before,
            answer=entry.message,
            line=entry.line,
            tools=tools,
            usage=entry.usage,
            model=entry.model,
            time=entry.time,
            hidden_reasoning=entry.hidden_reasoning,
        )

    @property
    def synthetic(self) -> bool:
        """Whether the file has lengths and block names only, no text."""
        return bool(self.hash_ids)


@dataclass(frozen=True)
class Conversation:
    """Requests that belong together. `parent` names the conversation that a sub-agent or side chain was started from.

    entries    the messages, in file order; a tree where they have ids (edits and retries are branches)
    file       which file of a folder it is from, relative to the folder; None for a single file
    extra      what the file says of the whole conversation besides, kept for lossless export
    """

    id: str
    requests: tuple[Request, ...]
    kind: ConversationKind = "main"
    parent: str | None = None
    title: str | None = None
    entries: tuple[Entry, ...] = ()
    file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A line that could not be used, and why; never fatal. `file`: which file of a folder; line 0: all of it."""

    line: int
    why: str
    file: str | None = None


@dataclass(frozen=True)
class Transcript:
    """One file, or one folder of files that belong together.

    format     the reader's name
    missing    what the format leaves out, as short phrases ("system prompt", "tool schemas", "reasoning (encrypted)")
    parts      the transcripts that this one was put together from; none if it is one file or folder
    """

    format: str
    path: str
    conversations: tuple[Conversation, ...]
    skipped: tuple[Skipped, ...] = ()
    missing: tuple[str, ...] = ()
    parts: tuple[Transcript, ...] = ()

    @property
    def requests(self) -> list[tuple[Conversation, Request]]:
        """All requests with their conversations, in the order in which they were made.

        By time if each has one, else by line within a file; a conversation's own requests never change places. Those of
        several transcripts follow each other.
        """
        if self.parts:
            return [pair for part in self.parts for pair in part.requests]
        pairs = [(conversation, request) for conversation in self.conversations for request in conversation.requests]
        times = [seconds(request.time) for _, request in pairs]
        return interleaved(pairs, times)


def seconds(time: str | None) -> float | None:
    """An ISO 8601 time as seconds since 1970, UTC if it has no zone; None where it is missing or no time."""
    if not time:
        return None
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def interleaved(
    pairs: list[tuple[Conversation, Request]], times: list[float | None]
) -> list[tuple[Conversation, Request]]:
    """`pairs` by time, or by line where any time is missing; the order within each conversation stays."""
    timed = None not in times
    latest: dict[int, float] = {}
    files: dict[str | None, int] = {}
    keyed = []
    for at, ((conversation, request), time) in enumerate(zip(pairs, times, strict=True)):
        own = time if timed and time is not None else float(request.line)
        own = latest[id(conversation)] = max(own, latest.get(id(conversation), own))
        file = 0 if timed else files.setdefault(conversation.file, len(files))
        keyed.append((file, own, at))
    return [pairs[at] for _, _, at in sorted(keyed)]


def requests_of(entries: tuple[Entry, ...], tools: tuple[dict[str, Any], ...] = ()) -> tuple[Request, ...]:
    """The requests of a plain conversation: each assistant message is one, on all messages before it."""
    out: list[Request] = []
    before: list[Message] = []
    for entry in entries:
        if entry.message.role == "assistant":
            out.append(Request.of(entry, tuple(before), tools))
        before.append(entry.message)
    return tuple(out)
