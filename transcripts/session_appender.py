"""The one program that adds to a session file: whole lines at the end, under a lock, nothing ever rewritten."""

from __future__ import annotations

import errno
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
_HEADER_BYTES = 1 << 20


class SessionBusy(MlxchatError):
    """Another program is chatting in this session."""

    code = "session_busy"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"the session {session_id} is open in another program", "leave it there first")


class SessionAppender:
    """Appends JSON lines to a session file. Lines that can't be written are kept and tried again with the next.

    exists      the file is there already; else it is made when the first line is written
    """

    def __init__(self, path: Path, exists: bool = False) -> None:
        self.path = path
        self._exists = exists
        self._made = False
        self._descriptor: int | None = None
        self._waiting = bytearray()

    def open(self) -> None:
        """Open and lock the file, if it isn't yet. Raises SessionBusy, and OSError if it can't be written to."""
        if self._descriptor is not None:
            return
        flags = os.O_RDWR | os.O_APPEND
        if not self._exists:
            make_private_folder(self.path.parent)
            flags |= os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, flags, FILE_MODE)
        try:
            lock(descriptor, self.path)
            os.fchmod(descriptor, FILE_MODE)
            status = os.fstat(descriptor)
            if not status.st_nlink:
                raise FileNotFoundError(errno.ENOENT, "it was removed")
            if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
                self._waiting[:0] = b"\n"  # a line was torn when its program died: it stays, by itself
        except BaseException:
            os.close(descriptor)
            raise
        self._made = self._made or not self._exists
        self._exists, self._descriptor = True, descriptor

    @property
    def complete(self) -> bool:
        """Whether every line is in the file."""
        return not self._waiting

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Add lines; they are in the system's hands when this returns. Raises as `open` does, keeping them."""
        for line in lines:
            self._waiting += encoded(line)
        self.open()
        assert self._descriptor is not None
        while self._waiting:
            written = os.write(self._descriptor, self._waiting)
            del self._waiting[:written]

    def close(self) -> None:
        """Let go of the file and of the lock. A file made here that the disk gave not one whole line goes."""
        if self._descriptor is None:
            return
        try:
            if self._made and self._waiting and b"\n" not in os.pread(self._descriptor, _HEADER_BYTES, 0):
                self.path.unlink(missing_ok=True)  # it would be the chat used last, and none that can go on
        except OSError:
            pass
        os.close(self._descriptor)
        self._descriptor = None


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
