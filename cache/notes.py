"""What a kept file's records can't say themselves: which conversations use them by now, and when they were last needed.

Losing the notes costs little: a record's head names the conversation that wrote it, and the file its age.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .index import Entry

_VERSION: Final = 1

Known = tuple[float, frozenset[str]]


@dataclass(frozen=True)
class Notes:
    """`label` is for people, the model's name. `known`: (offset, checksum) → (last needed, its conversations)."""

    label: str = ""
    known: dict[tuple[int, int], Known] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str, entries: Iterable[Entry]) -> Notes:
        """Those of records that are on disk."""
        known = {
            (entry.extent.offset, entry.checksum): (entry.used_at, frozenset(entry.users))
            for entry in entries
            if entry.extent is not None
        }
        return cls(label, known)

    @classmethod
    def read(cls, path: Path) -> Notes:
        """Those in a file; empty ones if it is missing or is not what it should be."""
        try:
            return cls._decoded(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return cls()

    @classmethod
    def _decoded(cls, value: Any) -> Notes:
        if value["version"] != _VERSION:
            return cls()
        users = [str(user) for user in value["users"]]
        known = {
            (int(offset), int(checksum)): (float(used_at), frozenset(users[number] for number in numbers))
            for offset, checksum, used_at, numbers in value["records"]
        }
        return cls(str(value["label"]), known)

    def write(self, path: Path) -> None:
        """Replace the file at once, its owner's only. OSError as the disk says."""
        users = sorted({user for _, some in self.known.values() for user in some})
        number = {user: at for at, user in enumerate(users)}
        records = [
            [offset, checksum, used_at, sorted(number[user] for user in some)]
            for (offset, checksum), (used_at, some) in self.known.items()
        ]
        value = {"version": _VERSION, "label": self.label, "users": users, "records": records}
        new = path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(value, file)
        new.replace(path)

    def apply(self, entries: Iterable[Entry], otherwise: float) -> None:
        """Tell the entries; those that the notes don't know were last needed at `otherwise`."""
        for entry in entries:
            assert entry.extent is not None
            known = self.known.get((entry.extent.offset, entry.checksum))
            entry.used_at = otherwise
            if known is not None:
                entry.used_at, users = known
                entry.users = set(users)
