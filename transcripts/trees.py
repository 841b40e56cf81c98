"""Messages as a tree: prompts that share a beginning share its entries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..engine.messages import Message
from .model import Entry, Request


def message_key(message: Message) -> bytes:
    """Equal for equal messages (16 bytes)."""
    return hashlib.blake2b(repr(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()


class MessageTree:
    """Grows by whole prompts. An entry's id names its place: the same message after another history is another one."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._keys: dict[int, tuple[Message, bytes]] = {}
        self._ids: dict[tuple[str | None, bytes], str] = {}

    def key(self, message: Message) -> bytes:
        """`message_key`, remembered by object: prompts repeat the same messages."""
        held = self._keys.get(id(message))
        if held is None:
            held = self._keys[id(message)] = (message, message_key(message))
        return held[1]

    def add(self, messages: Iterable[Message], line: int, parent: str | None = None) -> str | None:
        """Add a path from `parent` (None: the root); the id of its last entry. New entries begin at `line`."""
        for message in messages:
            at = (parent, self.key(message))
            known = self._ids.get(at)
            if known is None:
                known = self._ids[at] = f"m{len(self.entries) + 1}"
                self.entries[known] = Entry(message, line, id=known, parent_id=parent)
            parent = known
        return parent

    def annotate(self, entry_id: str, **fields: Any) -> None:
        """Set fields of an entry."""
        self.entries[entry_id] = replace(self.entries[entry_id], **fields)


def is_tree(entries: Sequence[Entry]) -> bool:
    """Whether the entries keep their parents (a plain list doesn't)."""
    return any(entry.parent_id is not None for entry in entries)


class Paths:
    """The way from the root to each entry. A parent that isn't there, or comes later, makes a root of its child.

    Without parents each entry follows the one before it.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._parent: list[int | None] = []
        linear = not is_tree(entries)
        place: dict[str, int] = {}
        for at, entry in enumerate(entries):
            before = at - 1 if at else None
            self._parent.append(before if linear else place.get(entry.parent_id or ""))
            if entry.id is not None:
                place[entry.id] = at

    def places(self, at: int) -> list[tuple[int, Entry]]:
        """(place, entry) from the root to the one in place `at`, itself last."""
        found: list[tuple[int, Entry]] = []
        step: int | None = at
        while step is not None:
            found.append((step, self.entries[step]))
            step = self._parent[step]
        return found[::-1]

    def to(self, at: int) -> list[Entry]:
        """The entries from the root to the one in place `at`, itself last."""
        return [entry for _, entry in self.places(at)]

    def leaves(self) -> list[int]:
        """The places of the entries that none follows: one per branch, in file order."""
        followed = set(self._parent)
        return [at for at in range(len(self.entries)) if at not in followed]


def tree_requests(entries: Sequence[Entry], tools: tuple[dict[str, Any], ...] = ()) -> tuple[Request, ...]:
    """The requests of a tree: each assistant message is one, on its own path from the root, in file order."""
    paths = Paths(entries)
    return tuple(
        Request.of(entry, tuple(before.message for before in paths.to(at)[:-1]), tools)
        for at, entry in enumerate(entries)
        if entry.message.role == "assistant"
    )
