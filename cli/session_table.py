"""The table of saved chats."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ..transcripts.session_file import SavedSession
from ..transcripts.session_store import updated
from .ages import age_text
from .text_table import aligned

FIRST_WORDS = 60


def session_table(sessions: Sequence[SavedSession]) -> Iterator[str]:
    """A line per chat below a line of titles: id, age, turns, model, name or first words."""
    rows = [("ID", "AGE", "TURNS", "MODEL", "FIRST WORDS")]
    for session in sessions:
        age = age_text(time.time() - updated(session.path))
        model, words = _one_line(session.settings.model or ""), _one_line(session.title)[:FIRST_WORDS]
        rows.append((session.id, age, str(session.turns), model, words))
    return aligned(rows)


def _one_line(text: str) -> str:
    """No name can break the table, or forge a row of it."""
    return " ".join(text.split())
