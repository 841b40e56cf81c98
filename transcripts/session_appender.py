"""The one program that adds to a session file: whole lines at the end, under a lock, nothing ever rewritten."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import MlxchatError

FILE_MODE, FOLDER_MODE = 0o600, 0o700
_TRIES, _PAUSE_S = 5, 0.02


class SessionBusy(MlxchatError):
    """Another program is chatting in this session."""

    code = "session_busy"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"the session {session_id} is open in another program", "leave it there first")


class SessionAppender:
    """Appends JSON lines to a session file, made when the first is written. Lines that can't be written are kept and
    tried again with the next.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._waiting = bytearray()

    @classmethod
    def open(cls, path: Path) -> SessionAppender:
        """To go on with a session that is there. Raises SessionBusy, and OSError if it can't be written to."""
        appender = cls(path)
        appender._attach(os.open(path, os.O_RDWR | os.O_APPEND))
        assert appender._descriptor is not None
        size = os.fstat(appender._descriptor).st_size
        if size and os.pread(appender._descriptor, 1, size - 1) != b"\n":
            appender._waiting += b"\n"  # a line was torn when its program died: it stays, by itself
        return appender

    @property
    def complete(self) -> bool:
        """Whether every line is in the file."""
        return not self._waiting

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Add lines; they are in the operating system's hands when this returns. Raises OSError, keeping them."""
        for line in lines:
            self._waiting += encoded(line)
        if self._descriptor is None:
            make_private_folder(self.path.parent)
            self._attach(os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE))
        assert self._descriptor is not None
        while self._waiting:
            written = os.write(self._descriptor, self._waiting)
            del self._waiting[:written]

    def close(self) -> None:
        """Let go of the file and of the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _attach(self, descriptor: int) -> None:
        try:
            lock(descriptor, self.path)
            os.fchmod(descriptor, FILE_MODE)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor


def lock(descriptor: int, path: Path) -> None:
    """Take the session's lock, held until the descriptor is closed. Raises SessionBusy if another program has it."""
    for left in reversed(range(_TRIES)):
        if not _is_locked(descriptor, fcntl.LOCK_EX):
            return
        if left:
            time.sleep(_PAUSE_S)  # whoever only asks whether it is locked holds it for a moment
    raise SessionBusy(path.stem)


def is_open(path: Path) -> bool:
    """Whether a program is chatting in the session."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return _is_locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int, wanted: int) -> bool:
    """Take the lock if it is free; whether it is not."""
    try:
        fcntl.flock(descriptor, wanted | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # a file system without locks
    return False


def encoded(line: Mapping[str, Any]) -> bytes:
    """One line of a JSONL file."""
    try:
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(line).encode() + b"\n"


def make_private_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, for its owner only."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER_MODE)
