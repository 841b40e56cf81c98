"""Which messages of a chat its session file holds, and under which ids: what lets it go to another branch."""

from __future__ import annotations

from ..engine.messages import Message
from .model import Entry


class WrittenMessages:
    """Entries by place. A message is told by the object it is, a system prompt by its words.

    One object may have been written at several places: a conversation that goes on without its oldest turns repeats
    the later ones below the system prompt.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[str | None, int | str], str] = {}
        self._by_id: dict[str, Entry] = {}
        self._entries: dict[int | str, Entry] = {}  # these also keep the objects alive, so that no id() is used twice

    def learn(self, entry: Entry) -> None:
        """`entry`, which has an id, is written."""
        assert entry.id is not None
        self._ids[entry.parent_id, _identity(entry.message)] = entry.id
        self._by_id[entry.id] = entry
        self._entries.setdefault(_identity(entry.message), entry)

    def id_below(self, parent: str | None, message: Message) -> str | None:
        """The id of `message` where it follows `parent`; None if it was never written there."""
        return self._ids.get((parent, _identity(message)))

    def entry(self, entry_id: str) -> Entry:
        """The entry of that id, which is written."""
        return self._by_id[entry_id]

    def copy_of(self, message: Message) -> Entry:
        """The entry to write where `message` is to stand again: what is known of it but its place."""
        known = self._entries.get(_identity(message))
        return Entry(message, 0) if known is None else Entry(message, 0, time=known.time, model=known.model)


def _identity(message: Message) -> int | str:
    return message.text if message.role == "system" else id(message)
