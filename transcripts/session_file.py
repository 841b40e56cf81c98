"""A saved session as it stands on disk: its header, its tree of messages, and where the conversation ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from ..engine.messages import Message
from ..errors import DataError, InputError
from .journal import read_journal
from .json_lines import NotJson, load
from .model import Entry, Skipped, seconds
from .session_lines import read_entry
from .session_settings import SessionSettings, refused_fields


@dataclass(frozen=True)
class SavedSession:
    """One session, read.

    settings      those last in force
    entries       every message on every branch, in the order they were written, each with an id
    head          id of the last message of the conversation, None if there is none
    refused       names in the header that a session may not set
    forked_from   id of the session this one was forked from
    created       milliseconds since 1970, None if the file doesn't say
    unfinished    the one of `entries` that only the journal holds: its program ended before the answer did
    """

    id: str
    path: Path
    settings: SessionSettings
    name: str | None = None
    entries: tuple[Entry, ...] = ()
    head: str | None = None
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[str, ...] = ()
    forked_from: str | None = None
    created: int | None = None
    unfinished: Entry | None = None

    def branch(self, head: str | None) -> tuple[Entry, ...]:
        """The messages from the root to `head`."""
        by_id = {entry.id: entry for entry in self.entries}
        found: list[Entry] = []
        seen: set[str] = set()
        while head is not None and head in by_id and head not in seen:
            seen.add(head)
            found.append(by_id[head])
            head = by_id[head].parent_id
        return tuple(reversed(found))

    @property
    def conversation(self) -> tuple[Entry, ...]:
        """The messages of the branch that was spoken on last, the system message included."""
        return self.branch(self.head)

    @property
    def answered(self) -> tuple[Entry, ...]:
        """The conversation without messages at its end that a person wrote and nothing answered."""
        entries = list(self.conversation)
        while entries and entries[-1].message.role == "user":
            entries.pop()
        return tuple(entries)

    @property
    def day(self) -> str | None:
        """The day (ISO, here) on which the conversation began; None if the file doesn't say."""
        spoken = (seconds(entry.time) for entry in self.conversation if entry.message.role != "system")
        began = next((moment for moment in spoken if moment is not None), None)
        if began is None and self.created is not None:
            began = self.created / 1000
        try:
            return None if began is None else date.fromtimestamp(began).isoformat()
        except (OverflowError, OSError, ValueError):
            return None

    @property
    def turns(self) -> int:
        """How many messages a person wrote in the conversation."""
        return sum(entry.message.role == "user" for entry in self.conversation)

    @property
    def opening(self) -> str:
        """The first words that a person wrote, on one line; "" if none did."""
        first = next((entry for entry in self.conversation or self.entries if entry.message.role == "user"), None)
        return " ".join(first.message.text.split()) if first is not None else ""

    @property
    def title(self) -> str:
        """Its name, or its first words."""
        return self.name or self.opening

    @property
    def tokens(self) -> int:
        """About how many tokens the conversation has: as counted at its last answer, or four characters each."""
        uncounted = 0
        for entry in reversed(self.answered):
            usage = entry.usage
            if usage is not None and usage.prompt_tokens is not None:
                answer = (usage.completion_tokens or 0) - (usage.reasoning_tokens or 0)
                return usage.prompt_tokens + answer + uncounted
            uncounted += _guess(entry.message)
        return uncounted


def read_session(path: Path, unfinished: bool = True) -> SavedSession:
    """Read a session, and the journal of an answer that never ended. Lines that can't be read are skipped and named.

    unfinished    False: only what was said to its end, up to the last answer; for a session that is open elsewhere
    Raises InputError if the file can't be read, DataError if its first line is no session header.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"can't read the session {path.stem}: {error.strerror}", "mlxchat sessions list shows what is there"
        ) from error
    reader = _Reader()
    lines = _objects(data, reader.skipped)
    number, header = next(lines, (1, None))
    if number != 1 or not _is_header(header):
        raise DataError(f"{path}, line 1 is no session header", "it was not written by mlxchat, or has been changed")
    assert header is not None
    reader.settings = SessionSettings.from_json(header)
    reader.name = _text(header.get("name"))
    for number, line in lines:
        reader.take(number, line)
    open_answer = read_journal(path) if unfinished else None
    if open_answer is not None and open_answer.id not in reader.entries:
        reader.add(open_answer)
    else:
        open_answer = None
    forked, created = header.get("forkedFrom"), header.get("timestamp")
    saved = SavedSession(
        id=path.stem,
        path=path,
        settings=reader.settings,
        name=reader.name,
        entries=tuple(reader.entries.values()),
        head=reader.head,
        skipped=tuple(reader.skipped),
        refused=tuple(refused_fields(header)),
        forked_from=_text(forked),
        created=created if type(created) is int else None,
        unfinished=open_answer,
    )
    if unfinished:
        return saved
    return replace(saved, head=saved.answered[-1].id if saved.answered else None)


@dataclass
class _Reader:
    """What the lines have said so far."""

    settings: SessionSettings = field(default_factory=SessionSettings)
    name: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    head: str | None = None
    skipped: list[Skipped] = field(default_factory=list)

    def take(self, number: int, line: dict[str, Any]) -> None:
        """One line after the header. Unknown kinds are left alone: later versions may write more."""
        match line.get("type"):
            case "message":
                try:
                    entry = read_entry(line, number)
                except ValueError as error:
                    self.skipped.append(Skipped(number, str(error)))
                else:
                    self.add(entry, linear="parentId" not in line)
            case "head":
                head = line.get("messageId")
                if head is None or (isinstance(head, str) and head in self.entries):
                    self.head = head
                else:
                    self.skipped.append(Skipped(number, f"no message is called {head!r}"))
            case "settings":
                self.settings = SessionSettings.from_json(line)
            case "session_info":
                self.name = _text(line.get("name")) or None

    def add(self, entry: Entry, linear: bool = False) -> None:
        """A message, which the conversation now ends with. One that names no parent follows the one before it."""
        if entry.id is None or linear:
            entry = replace(entry, id=entry.id or f"line-{entry.line}", parent_id=self.head if linear else None)
        assert entry.id is not None
        self.entries[entry.id] = entry
        self.head = entry.id


def _objects(data: bytes, skipped: list[Skipped]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is one; the others are noted, a torn last line too."""
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            value = load(raw)
        except NotJson:
            skipped.append(Skipped(number, "not JSON"))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            skipped.append(Skipped(number, "no JSON object"))


def _is_header(value: dict[str, Any] | None) -> bool:
    return value is not None and value.get("type") == "session" and isinstance(value.get("harness"), str)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _guess(message: Message) -> int:
    return len(message.text) // 4 + 1
