"""The copy that takes an answer file's place once it is whole, and what is left of one whose program was killed."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ..errors import DataError
from .standing import answer_in, read_standing

FILE_MODE = 0o666  # less the umask


def copy_path(path: Path) -> Path:
    """Where this program makes the copy of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.new")


def copied(source: int, target: Path, without: Collection[str]) -> int:
    """A copy of the lines whose ids aren't in `without`, locked and on the disk; its descriptor. Raises OSError."""
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, FILE_MODE)
    try:
        os.fchmod(descriptor, os.fstat(source).st_mode & 0o777)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(source, "rb", closefd=False) as lines, open(descriptor, "wb", closefd=False) as kept:
            lines.seek(0)
            for raw in lines:
                value = answer_in(raw)
                if value is not None and value["id"] not in without:
                    kept.write(raw)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_leftovers(path: Path) -> None:
    """Take away what a killed program left of a copy of `path`.

    Must hold: the lock of `path`, under which copies are made. So whoever made one that is there has ended.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9]+\.new")
    with suppress(OSError):
        for other in path.parent.iterdir():
            if name.fullmatch(other.name) and _holds_answers(other):
                other.unlink()


def _holds_answers(path: Path) -> bool:
    """Whether it is a file of answers, the last perhaps cut off: what is called so by chance is left alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        read_standing(descriptor, path)
    except (OSError, DataError):
        return False
    finally:
        os.close(descriptor)
    return True
