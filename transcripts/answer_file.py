"""The file of a batch's answers: one program adds to it, a whole line at a time, each safe on disk before the next.

Whatever moment the program is killed at, the file holds whole lines and at most one that was cut off, which is taken
away when the file is opened again: its request was not answered yet.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ..engine.file_errors import unwritable
from ..errors import MlxchatError, OutputError
from .answer_copy import FILE_MODE, copied, copy_path, remove_leftovers
from .batch_lines import BatchLine
from .standing import Object, read_standing


class AnswerFile:
    """Open and locked until `close`. Raises OutputError if it can't be written, DataError for another kind of file."""

    def __init__(self, path: Path) -> None:
        path = Path(os.path.realpath(path))  # a link stays one when the file behind it is replaced
        self._path = path
        self._descriptor, is_locked = _opened(path)
        try:
            self.standing, self._end = read_standing(self._descriptor, path)
            if is_locked:
                remove_leftovers(path)
            if self.standing.trimmed:
                os.ftruncate(self._descriptor, self._end)
            os.fsync(self._descriptor)
            _sync_folder(path)
        except OSError as error:
            self.close()
            raise _unwritable(path, error) from error
        except BaseException:
            self.close()
            raise

    def append(self, value: Object) -> None:
        """Add a line; it is on the disk when this returns. Raises OutputError, the file being as it was before."""
        line = _encoded(value)
        try:
            if os.fstat(self._descriptor).st_nlink == 0:  # what is written would be gone with the descriptor
                raise OutputError(
                    f"{self._path} was deleted or replaced", "run it again, or name another file with --out"
                )
            _write(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            self._take_back()
            raise _unwritable(self._path, error) from error
        self._end += len(line)
        self.standing.add(value)

    def drop_failed(self, asked: Iterable[BatchLine]) -> int:
        """Take out what `asked` has no answer to, at once or not at all; how many lines those were. Raises OutputError.

        The others that failed stay: nothing would run them again.
        """
        known = self.standing.requests
        lines = list(asked)
        names = {line.id for line in lines} | {known.get(line.custom_id or "", "") for line in lines if not line.fault}
        wanted = self.standing.failed & names
        if not wanted:
            return 0
        fresh = copy_path(self._path)
        try:
            descriptor = copied(self._descriptor, fresh, wanted)
            fresh.replace(self._path)  # whoever opens it from here on finds it locked
            _sync_folder(self._path)
        except BaseException as error:
            fresh.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _unwritable(self._path, error) from error
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.standing, self._end = read_standing(descriptor, self._path)
        return len(wanted)

    def close(self) -> None:
        """Let go of the file and of its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_back(self) -> None:
        """Shorten the file by what was written of a line. That needs no space; else the next run does it."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            pass


def _opened(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether it holds the file's lock: not all file systems have locks."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - one call, that never raises
            raise OutputError(f"can't write {path}: it is no file", "name another one with --out")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):  # replaced while we waited
            raise _busy(path)
    except BlockingIOError as error:
        os.close(descriptor)
        raise _busy(path) from error
    except MlxchatError:
        os.close(descriptor)
        raise
    except OSError:
        return descriptor, False
    return descriptor, True


def _busy(path: Path) -> OutputError:
    return OutputError(f"another program is writing answers to {path}", "wait for its end, or name another file")


def _unwritable(path: Path, error: OSError) -> OutputError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    mend = "make room and run it again: what is answered stays so" if full else "name another file with --out"
    return unwritable(path, error, mend)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _encoded(value: Object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value).encode() + b"\n"


def _sync_folder(path: Path) -> None:
    """See that the file's name is on the disk too."""
    try:
        descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # not every file system can
    finally:
        os.close(descriptor)
