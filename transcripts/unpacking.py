"""Opening files that may be compressed: zstd streams and zip archives, never unpacked beyond a bound."""

from __future__ import annotations

import contextlib
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ..engine.file_errors import unreadable
from ..errors import DataError

if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile

    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile
    from backports.zstd.zipfile import BadZipFile, ZipFile  # knows zstd members, which newer Inspect AI logs have

__all__ = ["BROKEN", "MOST_UNPACKED", "Bounded", "TooMuch", "ZipFile", "member", "opened"]

MOST_UNPACKED = 4 << 30
"""Bytes that one compressed file may unpack to."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"

BROKEN = (BadZipFile, zlib.error, ZstdError, EOFError, NotImplementedError, RuntimeError)
"""What reading a broken, truncated or encrypted compressed file raises."""


class TooMuch(DataError):
    """The file unpacks to more than the bound."""


class Bounded(io.RawIOBase):
    """A stream that ends in TooMuch after `most` bytes."""

    def __init__(self, inner: BinaryIO, most: int, name: str) -> None:
        self._inner = inner
        self._left = most
        self._name = name

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill `buffer`; the bytes written. Raises TooMuch."""
        view = memoryview(cast(bytearray, buffer))
        data = self._inner.read(len(view))
        self._left -= len(data)
        if self._left < 0:
            raise TooMuch(
                f"{self._name} unpacks to more than {MOST_UNPACKED >> 30} GB", "unpack it and take a part of it"
            )
        view[: len(data)] = data
        return len(data)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO | ZipFile]:
    """The file's bytes, or its members if it is a zip archive. Raises InputError, DataError."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        try:
            magic = file.read(4)
            file.seek(0)
        except OSError as error:
            raise unreadable(path, error) from error
        if magic == _ZIP:
            with _archive(file, path) as archive:
                yield archive
        elif magic == _ZSTD:
            with ZstdFile(file) as unpacked:
                yield io.BufferedReader(Bounded(cast(BinaryIO, unpacked), MOST_UNPACKED, path.name), 1 << 16)
        else:
            yield file


def _archive(file: BinaryIO, path: Path) -> ZipFile:
    try:
        return ZipFile(file)
    except BROKEN as error:
        raise DataError(f"{path.name} is a broken zip archive: {error}", "copy it again") from error


def member(archive: ZipFile, name: str, most: int) -> bytes:
    """One member of an archive. Raises TooMuch beyond `most` bytes, and BROKEN."""
    with archive.open(name) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise TooMuch(f"{name} unpacks to more than {most >> 20} MB", "unpack it and take a part of it")
    return data
