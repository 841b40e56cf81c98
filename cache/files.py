"""The few system calls that the scratch file needs: the one seam where a test puts a disk that fails."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NO_NAMELESS_FILES: Final = {errno.EISDIR, errno.ENOENT, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class FileSystem:
    """The real one. Every method raises OSError as the system call does; none retries."""

    def open_unlinked(self, directory: Path) -> int:
        """A descriptor of a new file, readable and writable by its owner only, that has no name.

        Where the system can, the file never had one, so that not even a kill right here leaves it behind.
        """
        nameless = getattr(os, "O_TMPFILE", 0)
        if nameless:
            try:
                return os.open(directory, nameless | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in _NO_NAMELESS_FILES:
                    raise
        descriptor, name = tempfile.mkstemp(prefix="mlxchat-", suffix=".kv", dir=directory)
        Path(name).unlink()
        return descriptor

    def open_kept(self, path: Path) -> int:
        """A descriptor of the file of that name, made if need be, its owner's only, locked for this program alone.

        BlockingIOError if another program has it.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same(descriptor, path):
                    os.fchmod(descriptor, 0o600)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # removed or replaced between the two calls: once more

    def pwritev(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Write what can be written of `buffers` at `offset`; the number of bytes written."""
        if hasattr(os, "pwritev"):
            return os.pwritev(descriptor, buffers, offset)
        return os.pwrite(descriptor, buffers[0], offset)

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Read into `buffers`, one after another, from `offset`; the number of bytes read, 0 at the file's end."""
        if hasattr(os, "preadv"):
            return os.preadv(descriptor, buffers, offset)
        read = os.pread(descriptor, buffers[0].nbytes, offset)
        buffers[0][: len(read)] = read
        return len(read)

    def advise(self, descriptor: int, offset: int, length: int) -> None:
        """Say that these bytes will be read soon, where the system has a word for it."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def ftruncate(self, descriptor: int, length: int) -> None:
        """Make the file exactly `length` bytes long."""
        os.ftruncate(descriptor, length)

    def size(self, descriptor: int) -> int:
        """The file's length in bytes."""
        return os.fstat(descriptor).st_size

    def close(self, descriptor: int) -> None:
        """Close it; a file without a name is gone then, a kept one is free for other programs."""
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        named, opened = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
