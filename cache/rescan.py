"""Finding the records of a kept file again, by their heads alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .files import FileSystem
from .index import Entry
from .record_header import RecordHeader
from .records import MAGIC, BadRecord, decode_head, head_length
from .scratch import Extent

_STEP: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 14


@dataclass
class Found:
    """What is in a kept file. `damaged` counts what begins like a record and can't be used: that space is free."""

    entries: list[Entry] = field(default_factory=list)
    damaged: int = 0


def rescan(files: FileSystem, descriptor: int, namespace: bytes) -> Found:
    """Every whole head of a record of this namespace, in the file's order. OSError as the disk says.

    The tensors are not read: a record whose tensors are damaged is a miss when it is read, as any other.
    """
    found, bytes_of = Found(), _Bytes(files, descriptor)
    at = bytes_of.next_magic(0)
    while at is not None:
        try:
            header, checksum = _head(bytes_of, at)
            if header.namespace != namespace or at + header.nbytes > bytes_of.size:
                raise BadRecord("a record of another namespace, or one that was cut off")
        except BadRecord:
            found.damaged += 1
            at = bytes_of.next_magic(at + 1)
            continue
        extent = Extent(at, header.nbytes)
        users = {header.user} if header.user else set()
        found.entries.append(Entry(header, extent=extent, checksum=checksum, users=users))
        at = bytes_of.next_magic(extent.end)
    return found


def _head(bytes_of: _Bytes, at: int) -> tuple[RecordHeader, int]:
    start = bytes_of.read(at, _HEAD_BYTES)
    length = head_length(start)
    if length > start.nbytes:
        start = bytes_of.read(at, length)
    if length > start.nbytes:
        raise BadRecord("a head that was cut off")
    return decode_head(start[:length])


class _Bytes:
    """A file read anywhere, up to its end."""

    def __init__(self, files: FileSystem, descriptor: int) -> None:
        self.size = files.size(descriptor)
        self._files = files
        self._descriptor = descriptor

    def read(self, at: int, length: int) -> memoryview:
        """The bytes [at, at + length), fewer at the file's end."""
        buffer = memoryview(bytearray(max(0, min(length, self.size - at))))
        done = 0
        while done < buffer.nbytes:
            read = self._files.preadv(self._descriptor, [buffer[done:]], at + done)
            if read <= 0:
                break
            done += read
        return buffer[:done]

    def next_magic(self, at: int) -> int | None:
        """Where the next record may begin, at `at` or later. Records follow one another, so mostly at once."""
        if bytes(self.read(at, len(MAGIC))) == MAGIC:
            return at
        while at < self.size:
            chunk = self.read(at, _STEP)
            near = bytes(chunk).find(MAGIC)
            if near >= 0:
                return at + near
            if chunk.nbytes < _STEP:
                return None
            at += _STEP - len(MAGIC) + 1
        return None
