"""The file of a batch's answers: one program adds to it, a whole line at a time, each safe on disk before the next.

Whatever moment the program is killed at, the file holds whole lines and at most one that was cut off, which is taken
away when the file is opened again: its request was not answered yet.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..engine.file_errors import unwritable
from ..errors import DataError, MlxchatError, OutputError
from .batch_answers import OK
from .batch_lines import ID_PREFIX, BatchLine

Object = dict[str, Any]

_BEGINS = json.dumps({"id": ID_PREFIX})[:-2].encode()
_FILE_MODE = 0o666  # less the umask


@dataclass
class Standing:
    """What the file holds already.

    requests   custom_id to the line's id, of requests; lines: the ids of all lines
    failed     ids of lines that are no answers; trimmed: bytes of a line that was cut off
    """

    requests: dict[str, str] = field(default_factory=dict)
    lines: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    trimmed: int = 0

    def add(self, value: Object) -> None:
        """Note a line."""
        name, custom_id, response = value["id"], value["custom_id"], value["response"]
        self.lines.add(name)
        if response is not None and custom_id is not None:
            self.requests[custom_id] = name
        if response is None or response.get("status_code") != OK:
            self.failed.add(name)


class AnswerFile:
    """Open and locked until `close`. Raises OutputError if it can't be written, DataError for another kind of file."""

    def __init__(self, path: Path) -> None:
        path = Path(os.path.realpath(path))  # a link stays one when the file behind it is replaced
        self._path = path
        self._descriptor = _opened(path)
        try:
            self.standing, self._end = _read(self._descriptor, path)
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
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            descriptor = _copied(self._descriptor, fresh, wanted)
            fresh.replace(self._path)  # whoever opens it from here on finds it locked
            _sync_folder(self._path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise _unwritable(self._path, error) from error
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.standing, self._end = _read(descriptor, self._path)
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


def _opened(path: Path) -> int:
    """A descriptor that holds the file's lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, _FILE_MODE)
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
        pass  # a file system without locks
    return descriptor


def _busy(path: Path) -> OutputError:
    return OutputError(f"another program is writing answers to {path}", "wait for its end, or name another file")


def _unwritable(path: Path, error: OSError) -> OutputError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    mend = "make room and run it again: what is answered stays so" if full else "name another file with --out"
    return unwritable(path, error, mend)


def _read(descriptor: int, path: Path) -> tuple[Standing, int]:
    """What the file holds, and how long its whole lines are. Raises DataError for lines that aren't ours."""
    standing, end = Standing(), 0
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        for raw, last in _with_last(file):
            value = _answer(raw)
            if value is None:
                torn = raw.rstrip(b"\0\n")
                if last and (torn.startswith(_BEGINS) or _BEGINS.startswith(torn)):
                    standing.trimmed = len(raw)
                    break
                raise DataError(f"{path} holds something else than answers of a batch", "name another file with --out")
            standing.add(value)
            end += len(raw)
    return standing, end


def _with_last(lines: Any) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is the last one."""
    before: bytes | None = None
    for line in lines:
        if before is not None:
            yield before, False
        before = line
    if before is not None:
        yield before, True


def _answer(raw: bytes) -> Object | None:
    """The line if it is a whole one of an answer file, else None."""
    try:
        value = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not {"id", "custom_id", "response"} <= set(value):
        return None
    fits = isinstance(value["id"], str) and isinstance(value["custom_id"], str | None)
    fits = fits and isinstance(value["response"], dict | None)
    return value if fits else None


def _copied(source: int, target: Path, without: set[str]) -> int:
    """A copy of the lines whose ids aren't in `without`, locked and on the disk; its descriptor."""
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, _FILE_MODE)
    try:
        os.fchmod(descriptor, os.fstat(source).st_mode & 0o777)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # a file system without locks
        with open(source, "rb", closefd=False) as file:
            file.seek(0)
            for raw in file:
                value = _answer(raw)
                if value is not None and value["id"] not in without:
                    _write(descriptor, raw)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
