"""Several transcripts as one: conversations that keep apart, whatever their files call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import MlxchatError
from .model import Conversation, Transcript


@dataclass(frozen=True)
class Unread:
    """A file that can't be replayed, and why."""

    path: str
    error: MlxchatError


def read_all(names: Sequence[str], read: Callable[[str], Transcript]) -> tuple[Transcript, tuple[Unread, ...]]:
    """All that can be read, as one transcript. Of several files those that can't be are told; raises what `read` raises
    if it is the only one, or for the first if none can be.
    """
    found: list[Transcript] = []
    unread: list[Unread] = []
    for name in names:
        try:
            found.append(read(name))
        except MlxchatError as error:
            unread.append(Unread(name, error))
    if not found:
        raise unread[0].error
    return together(found), tuple(unread)


def together(transcripts: Sequence[Transcript]) -> Transcript:
    """One transcript of these, in this order; a single one as it is. `parts` are they, their conversations renamed."""
    if len(transcripts) == 1:
        return transcripts[0]
    ids = [conversation.id for transcript in transcripts for conversation in transcript.conversations]
    shared = {one for one in ids if ids.count(one) > 1} if len(set(ids)) < len(ids) else set[str]()
    parts = tuple(_renamed(transcript, at, shared) for at, transcript in enumerate(transcripts, 1))
    return Transcript(
        format="+".join(dict.fromkeys(part.format for part in parts)),
        path=parts[0].path,
        conversations=tuple(conversation for part in parts for conversation in part.conversations),
        skipped=tuple(replace(one, file=one.file or Path(part.path).name) for part in parts for one in part.skipped),
        missing=tuple(dict.fromkeys(phrase for part in parts for phrase in part.missing)),
        parts=parts,
    )


def _renamed(transcript: Transcript, at: int, shared: set[str]) -> Transcript:
    def name(one: str) -> str:
        return f"{one} ({at})" if one in shared else one

    def renamed(conversation: Conversation) -> Conversation:
        parent = None if conversation.parent is None else name(conversation.parent)
        return replace(conversation, id=name(conversation.id), parent=parent)

    return replace(transcript, conversations=tuple(map(renamed, transcript.conversations)))
