"""The scratch file: one file, as a rule nameless, cut into extents, with its free space known and given back.

A *kept* file has a name and is looked through for records by a later program. So in it a record's first bytes are
written last, and blanked before its extent is free: whatever moment the program is killed at, what looks like a record
is one.

`allocate`, `free` and `check` change or read the free list: the caller holds the store's lock. `write` and `read_into`
touch only the descriptor and may run beside them, on extents that the caller keeps from being freed.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import CacheTrouble
from .files import FileSystem
from .records import Buffer, byte_view

_MOST_BUFFERS: Final = 512
_MOST_BYTES: Final = 1 << 30
_BLANKED: Final = 64
_ERASED_AT_ONCE: Final = 1 << 20


class Extent(NamedTuple):
    """Bytes [offset, offset + length) of the file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.length


class ScratchFile:
    """Extents in a file that vanishes with its descriptor, or in the one that `kept` is the descriptor of.

    OSError if `directory` can't hold it. `tainted`: a freed record could not be blanked, so the file must not be kept.
    """

    def __init__(self, directory: Path, files: FileSystem | None = None, kept: int | None = None) -> None:
        self._files = files or FileSystem()
        self._is_kept = kept is not None
        self._descriptor: int | None = self._files.open_unlinked(directory) if kept is None else kept
        self.length = 0 if kept is None else self._files.size(kept)
        self.peak = self.length
        self.tainted = False
        self._free: list[Extent] = []
        self._by_length: list[tuple[int, int]] = []
        if self.length:
            self._insert(Extent(0, self.length))

    @classmethod
    def nameless(cls, directory: Path, files: FileSystem | None = None) -> ScratchFile:
        """One that vanishes with its descriptor; CacheTrouble if `directory` can't be made, or can't hold it."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(directory, files)
        except OSError as error:
            raise CacheTrouble(
                f"can't keep a KV cache in {directory}: {error.strerror or error}",
                "name another folder with --cache-dir, or chat with --no-cache",
            ) from error

    def adopt(self, extent: Extent) -> None:
        """Take an extent out of the free space, which a kept file is full of before its records are known."""
        around = self._free[bisect_right(self._free, (extent.offset, self.length)) - 1]
        self._remove(around)
        if around.offset < extent.offset:
            self._insert(Extent(around.offset, extent.offset - around.offset))
        if extent.end < around.end:
            self._insert(Extent(extent.end, around.end - extent.end))

    def allocate(self, length: int, limit: int) -> Extent | None:
        """An extent of `length` > 0 bytes: the tightest free one, else at the file's end.

        None if the file would have to grow past `limit` bytes. OSError if it can't grow.
        """
        if length <= 0:
            raise ValueError(f"an extent of {length} bytes")
        tightest = bisect_left(self._by_length, (length, 0))
        if tightest < len(self._by_length):
            held, offset = self._by_length[tightest]
            self._remove(Extent(offset, held))
            if held > length:
                self._insert(Extent(offset + length, held - length))
            return Extent(offset, length)
        self.give_back()
        extent = Extent(self.length, length)
        if extent.end > limit:
            return None
        self._files.ftruncate(self._handle(), extent.end)
        self.length = extent.end
        self.peak = max(self.peak, self.length)
        return extent

    def free(self, extent: Extent) -> None:
        """Join it with free neighbours; free space at the end shrinks the file.

        Never raises for the disk: space that could not be given back stays free and is given back with the next.
        """
        if self._is_kept:
            self._blank(extent.offset, min(extent.length, _BLANKED))
        at = bisect_left(self._free, extent)
        offset, end = extent.offset, extent.end
        if at < len(self._free) and self._free[at].offset == end:
            end = self._free[at].end
            self._remove(self._free[at])
        if at and self._free[at - 1].end == offset:
            offset = self._free[at - 1].offset
            self._remove(self._free[at - 1])
        self._insert(Extent(offset, end - offset))
        self.give_back()

    def erase(self, extent: Extent) -> None:
        """Overwrite the whole of it, where the file outlives the program; as `free`, it never raises for the disk."""
        if self._is_kept:
            self._blank(extent.offset, extent.length)

    def _blank(self, offset: int, length: int) -> None:
        zeros = memoryview(bytes(min(length, _ERASED_AT_ONCE)))
        end = offset + length
        try:
            while offset < end:
                offset += self._files.pwritev(self._handle(), [zeros[: end - offset]], offset)
        except OSError:
            self.tainted = True

    def give_back(self) -> None:
        """Shrink the file by the free space at its end, as `free` does; again, where the disk refused before."""
        if not self._free or self._free[-1].end != self.length or self._descriptor is None:
            return
        last = self._free[-1]
        try:
            self._files.ftruncate(self._descriptor, last.offset)
        except OSError:
            return
        self._remove(last)
        self.length = last.offset

    def _insert(self, extent: Extent) -> None:
        insort(self._free, extent)
        insort(self._by_length, (extent.length, extent.offset))

    def _remove(self, extent: Extent) -> None:
        del self._free[bisect_left(self._free, extent)]
        del self._by_length[bisect_left(self._by_length, (extent.length, extent.offset))]

    def free_extents(self) -> list[Extent]:
        """The free list, in the file's order."""
        return list(self._free)

    def write(self, extent: Extent, buffers: Sequence[Buffer]) -> None:
        """Fill the extent exactly. OSError as the disk says; ValueError if the buffers are of another length."""
        waiting = [view for view in map(byte_view, buffers) if view.nbytes]
        if sum(view.nbytes for view in waiting) != extent.length:
            raise ValueError("buffers that don't fill their extent")
        first = 1 if self._is_kept else 0
        self._fill(extent.offset + sum(view.nbytes for view in waiting[:first]), waiting[first:])
        self._fill(extent.offset, waiting[:first])

    def _fill(self, offset: int, waiting: list[memoryview]) -> None:
        waiting.reverse()
        while waiting:
            written = self._files.pwritev(self._handle(), _next_call(waiting), offset)
            if written <= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            offset += written
            _consume(waiting, written)

    def read_into(self, offset: int, *targets: memoryview) -> None:
        """Fill `targets`, one after another, from `offset`. OSError as the disk says, and where the file ends early."""
        waiting = [target for target in reversed(targets) if target.nbytes]
        while waiting:
            read = self._files.preadv(self._handle(), _next_call(waiting), offset)
            if read <= 0:
                raise OSError(errno.EIO, "the scratch file ended too early")
            offset += read
            _consume(waiting, read)

    def advise(self, extent: Extent) -> None:
        """Have the system begin to read an extent that will be wanted soon. Never fails."""
        try:
            self._files.advise(self._handle(), extent.offset, extent.length)
        except OSError:
            pass

    def _handle(self) -> int:
        if self._descriptor is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def close(self) -> None:
        """Close the file, which ends one without a name. Safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._files.close(descriptor)

    def check(self) -> None:
        """Raise AssertionError if the free list, the tracked length and the file's length disagree."""
        for left, right in zip(self._free, self._free[1:], strict=False):
            assert left.end < right.offset, f"scratch: free {left} and {right} overlap or should be one"
        for extent in self._free:
            assert extent.offset >= 0, f"scratch: {extent} starts before the file"
            assert extent.length > 0, f"scratch: {extent} is empty"
            assert extent.end <= self.length, f"scratch: {extent} lies past the end, {self.length}"
        assert sorted((e.length, e.offset) for e in self._free) == self._by_length, "scratch: two free lists"
        assert self.length <= self.peak, f"scratch: length {self.length} over its peak {self.peak}"
        if self._descriptor is not None:
            size = self._files.size(self._descriptor)
            assert size == self.length, f"scratch: the file has {size} bytes, {self.length} tracked"


def _next_call(waiting: Sequence[memoryview]) -> list[memoryview]:
    """The next buffers, within what one system call takes. `waiting` is in reverse order."""
    call: list[memoryview] = []
    room = _MOST_BYTES
    for view in reversed(waiting[-_MOST_BUFFERS:]):
        call.append(view[:room])
        room -= call[-1].nbytes
        if not room:
            break
    return call


def _consume(waiting: list[memoryview], written: int) -> None:
    """Drop `written` bytes from the front of what waits (the list's end)."""
    while written:
        first = waiting.pop()
        if first.nbytes > written:
            waiting.append(first[written:])
            return
        written -= first.nbytes
