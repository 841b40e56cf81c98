"""Words looked for in saved sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .session_file import SavedSession

_AROUND = 40


@dataclass(frozen=True)
class Found:
    """One message that holds the words. `excerpt` is one line around them, `name` if it is the session's name."""

    session: SavedSession
    message_id: str | None
    role: str
    excerpt: str


def search(sessions: list[SavedSession], words: str) -> Iterator[Found]:
    """Every message, on any branch, whose text or reasoning holds `words`, in any case; and every such name."""
    wanted = " ".join(words.split()).casefold()
    for session in sessions:
        excerpt = _excerpt(session.name or "", wanted)
        if excerpt is not None:
            yield Found(session, None, "name", excerpt)
        for entry in session.entries:
            excerpt = _excerpt(f"{entry.message.text} {entry.message.reasoning or ''}", wanted)
            if excerpt is not None:
                yield Found(session, entry.id, entry.message.role, excerpt)


def _excerpt(text: str, wanted: str) -> str | None:
    line = " ".join(text.split())
    at = line.casefold().find(wanted)
    if at < 0:
        return None
    start, end = max(0, at - _AROUND), at + len(wanted) + _AROUND
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
