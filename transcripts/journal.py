"""The words of an answer while it is being spoken, so that a program that dies leaves all that it had shown.

A file beside the session, written word by word, gone once the whole answer stands in the session itself. Its first line
says which message it will be; every other line holds more of its reasoning or of its text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ..engine.messages import Message, TextPart
from .model import Entry

Kind = Literal["reasoning", "text"]
_SUFFIX = ".partial"


def journal_path(session: Path) -> Path:
    """Where the journal of the session file `session` is."""
    return session.with_suffix(_SUFFIX)


class Journal:
    """One answer in the making. `entry` is what it would be if it ended now. Raises OSError where it can't write."""

    def __init__(self, session: Path, entry: Entry) -> None:
        self._path = journal_path(session)
        self._entry = entry
        self._said: dict[Kind, list[str]] = {"reasoning": [], "text": []}
        self._descriptor: int | None = None

    @property
    def id(self) -> str:
        """The id that the message will have."""
        assert self._entry.id is not None
        return self._entry.id

    @property
    def entry(self) -> Entry | None:
        """The interrupted message, None if nothing was said."""
        return _unfinished(self._entry, "".join(self._said["reasoning"]), "".join(self._said["text"]))

    def add(self, kind: Kind, text: str) -> None:
        """Keep more words. They are in the operating system's hands when this returns."""
        self._said[kind].append(text)
        if self._descriptor is None:
            flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND
            self._descriptor = os.open(self._path, flags, 0o600)
            first = {"id": self.id, "parentId": self._entry.parent_id, "model": self._entry.model}
            self._write({**first, "timestamp": self._entry.time})
        self._write({kind: text})

    def remove(self) -> None:
        """The answer stands elsewhere, or is not wanted."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._path.unlink(missing_ok=True)

    def _write(self, value: dict[str, Any]) -> None:
        assert self._descriptor is not None
        os.write(self._descriptor, json.dumps(value).encode() + b"\n")


def read_journal(session: Path) -> Entry | None:
    """The unfinished message of a session file; None if there is none, or it has no words."""
    try:
        lines = journal_path(session).read_bytes().split(b"\n")
    except OSError:
        return None
    first, *rest = list(_objects(lines)) or [{}]
    if not isinstance(first.get("id"), str):
        return None
    said = {kind: "".join(filter(None, (_text(one, kind) for one in rest))) for kind in ("reasoning", "text")}
    entry = Entry(
        Message("assistant"),
        0,
        id=first["id"],
        parent_id=_text(first, "parentId"),
        model=_text(first, "model"),
        time=_text(first, "timestamp"),
    )
    return _unfinished(entry, said["reasoning"], said["text"])


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """What can be read, up to a line that was torn."""
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            return
        if isinstance(value, dict):
            yield value


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    return found if isinstance(found, str) else None


def _unfinished(entry: Entry, reasoning: str, text: str) -> Entry | None:
    if not reasoning and not text:
        return None
    content = (TextPart(text),) if text else ()
    message = Message("assistant", content, reasoning=reasoning or None, interrupted=True)
    return Entry(message, entry.line, id=entry.id, parent_id=entry.parent_id, time=entry.time, model=entry.model)
