"""A cache that outlives its program: one file of records for each namespace, locked by the program that uses it.

NAMESPACE.kv              the records, one after another; 0600, locked while in use
NAMESPACE.json            its notes
NAMESPACE.USER.forget     a conversation that was deleted while another program had the lock
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import CacheTrouble
from .files import FileSystem
from .index import Entry
from .notes import Notes
from .rescan import rescan
from .scratch import ScratchFile

_USER: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")


class KeptBusy(CacheTrouble):
    """Another program has the file."""


class KeptFile:
    """An open, locked file. `entries` are the records found in it, `damaged` counts what was put aside.

    KeptBusy if another program has it; OSError if the folder or the file can't be used.
    """

    def __init__(self, path: Path, namespace: bytes, label: str = "", files: FileSystem | None = None) -> None:
        self._files = files or FileSystem()
        self.path = path
        self._notes_path = path.with_suffix(".json")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.descriptor = self._files.open_kept(path)
        except BlockingIOError as error:
            raise KeptBusy("another program has the kept KV cache of this model") from error
        try:
            found = rescan(self._files, self.descriptor, namespace)
            notes = Notes.read(self._notes_path)
            notes.apply(found.entries, path.stat().st_mtime)
        except BaseException:
            self._files.close(self.descriptor)
            raise
        self.label = label or notes.label
        self.entries, self.damaged = found.entries, found.damaged

    @classmethod
    def of(cls, folder: Path, namespace: bytes, label: str, files: FileSystem | None = None) -> KeptFile:
        """The one of a namespace."""
        return cls(folder / f"{namespace.hex()}.kv", namespace, label, files)

    def scratch(self) -> ScratchFile:
        """The file as extents: the records' are taken, all else is free."""
        file = ScratchFile(self.path.parent, self._files, self.descriptor)
        for entry in self.entries:
            assert entry.extent is not None
            file.adopt(entry.extent)
        file.give_back()
        return file

    def save(self, entries: Iterable[Entry]) -> bool:
        """Write the notes; whether the disk took them."""
        try:
            Notes.of(self.label, entries).write(self._notes_path)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Take the file and its notes away; the descriptor stays open."""
        for path in (self.path, self._notes_path):
            path.unlink(missing_ok=True)

    def take_deleted(self) -> list[str]:
        """The conversations that were deleted elsewhere since this was asked last."""
        users = []
        for mark in self.path.parent.glob(f"{self.path.stem}.*.forget"):
            users.append(mark.name.split(".")[1])
            with suppress(OSError):  # a folder that can't be changed any more: obeyed again next time
                mark.unlink()
        return users


def leave_mark(path: Path, user: str) -> None:
    """Ask the program that has a kept file to forget a conversation. OSError as the disk says."""
    if _USER.fullmatch(user):
        path.with_name(f"{path.stem}.{user}.forget").touch(mode=0o600)
