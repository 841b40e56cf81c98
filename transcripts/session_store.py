"""The folder of saved sessions: which there are, by id or by age, and what removes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engine.folders import data_dir
from ..errors import DataError, InputError, OutputError, UsageError
from .journal import journal_path
from .session_appender import SessionBusy, encoded, lock
from .session_file import SavedSession, read_session
from .session_images import ImageFolder

LAST = "last"
_LIST = "mlxchat sessions list shows them all"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Removal:
    """What `remove` did: ids of the sessions that went, ids of those that are open elsewhere, pictures that went."""

    removed: tuple[str, ...]
    busy: tuple[str, ...]
    images: int


class SessionStore:
    """Session files `ID.jsonl` in one folder, made 0700 when the first chat is saved."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_dir() / "sessions"
        self.images = ImageFolder(self.folder)

    def paths(self) -> list[Path]:
        """Every session file, the one used last first."""
        try:
            found = [path for path in self.folder.iterdir() if path.suffix == ".jsonl" and path.is_file()]
        except OSError:
            return []
        return sorted(found, key=lambda path: (updated(path), path.name), reverse=True)

    def find(self, prefix: str) -> Path:
        """The session whose id begins with `prefix`, or the one used last for "last", which is the beginning of no id.

        Raises InputError if there is none, UsageError if several.
        """
        paths = self.paths()
        wanted = prefix.strip().lower()
        if wanted == LAST:
            return self.newest()
        found = [path for path in paths if wanted and path.stem.lower().startswith(wanted)]
        found = [path for path in found if path.stem.lower() == wanted] or found
        if not found:
            raise InputError(f"no saved session begins with {prefix!r}", _LIST)
        if len(found) > 1:
            names = ", ".join(path.stem for path in found[:_MOST_NAMED]) + (", …" * (len(found) > _MOST_NAMED))
            raise UsageError(f"{len(found)} sessions begin with {prefix!r}: {names}", "give more of its id")
        return found[0]

    def newest(self) -> Path:
        """The session used last. Raises InputError if there is none."""
        paths = [path for path in self.paths() if _size(path)]  # an empty one: its program died before the first line
        if not paths:
            raise InputError("there is no saved session to continue", "every chat is saved unless --no-save is given")
        return paths[0]

    def readable(self) -> tuple[list[SavedSession], list[DataError | InputError]]:
        """Every session, the one used last first, and why others can't be read."""
        sessions: list[SavedSession] = []
        troubles: list[DataError | InputError] = []
        for path in self.paths():
            try:
                sessions.append(read_session(path))
            except (DataError, InputError) as error:
                troubles.append(error)
        return sessions, troubles

    def rename(self, path: Path, name: str) -> None:
        """Append a name to a session, open elsewhere or not. Raises OutputError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, b"\n" * torn + encoded({"type": "session_info", "name": name}))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputError(
                f"can't write the session {path.stem}: {error.strerror}", "see its permissions"
            ) from error

    def remove(self, paths: Sequence[Path]) -> Removal:
        """Delete sessions that no program has open, and pictures that no session names any more. Raises OutputError."""
        removed, busy = [], []
        for path in paths:
            try:
                _remove(path)
            except SessionBusy:
                busy.append(path.stem)
            except OSError as error:
                raise OutputError(f"can't remove {path}: {error.strerror}", "see the folder's permissions") from error
            else:
                removed.append(path.stem)
        return Removal(tuple(removed), tuple(busy), self._remove_images() if removed else 0)

    def _remove_images(self) -> int:
        """Pictures stay while any session might name them: one that can't be read keeps them all."""
        if not (self.folder / "images").is_dir():
            return 0
        with self.images.held():
            sessions, troubles = self.readable()
            if troubles:
                return 0
            used = [self.images.sources(entry.message) for session in sessions for entry in session.entries]
            return self.images.remove_all_but(set().union(*used))


def updated(path: Path) -> float:
    """When a session was last written to, in seconds since 1970; 0 if it is gone."""
    times = [0.0]
    for one in (path, journal_path(path)):
        try:
            times.append(one.stat().st_mtime)
        except OSError:
            pass
    return max(times)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock(descriptor, path)
        journal_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
