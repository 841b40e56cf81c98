"""One stored record: a small header that says what it is, then the tensors in safetensors layout.

All numbers are little-endian. The checksum is zlib.crc32 over the whole record but its own four bytes.

    offset  bytes  field
         0      8  magic 89 4D 4C 58 4B 56 0D 0A
         8      4  record version, 1
        12      4  offset of the blob, a multiple of 64
        16      8  bytes in the blob; the record ends with it
        24      4  checksum
        28      4  n, elements in the place (1 to 256)
        32      8  position
        40      8  row_start
        48      4  g, bytes of the group's name
        52      4  zero
        56     32  namespace
        88     32  key of the place's parent
       120     4n  elements of the place, int32
    120+4n      g  group, UTF-8
                   zeros up to the blob
      blob         a complete safetensors file: 8 bytes of length, JSON padded with spaces so that the tensors start
                   at a multiple of 64 from the record's start, the tensors in the order of `RecordHeader.tensors`
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ..errors import CacheTrouble
from .keys import BLOCK, KEY_BYTES
from .keys import Place as Place

MAGIC: Final = b"\x89MLXKV\r\n"
RECORD_VERSION: Final = 1
_ALIGN: Final = 64
_FIXED: Final = struct.Struct("<8sIIQIIQQII32s32s")
_CRC_AT: Final = 24
_CRC_END: Final = 28

Buffer = bytes | bytearray | memoryview

DTYPE_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}
"""Bytes of one value, by the names that safetensors gives dtypes."""


class BadRecord(CacheTrouble):
    """These bytes are not the record they should be. It becomes a miss."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's name, safetensors dtype and shape. ValueError for an unknown dtype or a negative width."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES or any(width < 0 for width in self.shape):
            raise ValueError(f"no tensor {self.name} of {self.dtype} {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class RecordHeader:
    """What a record is: rows [row_start, position) of `tensors`, for `group` of layers, at `place`.

    `position` counts from the sequence's start; a state that has no rows has row_start == position.
    ValueError if the numbers contradict each other.
    """

    namespace: bytes
    group: str
    place: Place
    position: int
    row_start: int
    tensors: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        if len(self.namespace) != KEY_BYTES:
            raise ValueError(f"a namespace of {len(self.namespace)} bytes")
        if not 0 <= self.row_start <= self.position:
            raise ValueError(f"rows [{self.row_start}, {self.position})")
        if self.position < self.place.length or (self.position - self.place.length) % BLOCK:
            raise ValueError(f"position {self.position} is not {self.place.length} past a block edge")

    @cached_property
    def blob_offset(self) -> int:
        """Bytes before the safetensors blob."""
        return _padded(_FIXED.size + len(self.place.ids) + len(self.group.encode()))

    @cached_property
    def payload_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(spec.nbytes for spec in self.tensors)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole record, as stored."""
        return self.blob_offset + len(self.safetensors_header) + self.payload_bytes

    @cached_property
    def safetensors_header(self) -> bytes:
        """The blob up to its tensors."""
        fields: dict[str, Any] = {}
        start = 0
        for spec in self.tensors:
            end = start + spec.nbytes
            fields[spec.name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": (start, end)}
            start = end
        if len(fields) != len(self.tensors):
            raise ValueError("two tensors of one name")
        text = json.dumps(fields, separators=(",", ":")).encode()
        text = text.ljust(_padded(8 + len(text)) - 8)
        return len(text).to_bytes(8, "little") + text


def _padded(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


def byte_view(buffer: Buffer) -> memoryview:
    """A flat view of a contiguous buffer's bytes (an empty one where a width is 0)."""
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


def payload_views(header: RecordHeader, payload: Sequence[Buffer]) -> list[memoryview]:
    """One flat view for each tensor; ValueError if count or sizes are not those of the header."""
    views = [byte_view(buffer) for buffer in payload]
    if [view.nbytes for view in views] != [spec.nbytes for spec in header.tensors]:
        raise ValueError(f"payload of {[v.nbytes for v in views]} bytes for {header.tensors}")
    return views


def encode(header: RecordHeader, payload: Sequence[Buffer]) -> list[Buffer]:
    """The record as buffers to be written one after another; the payload is checksummed, not copied.

    ValueError if the payload doesn't fit the header.
    """
    views = payload_views(header, payload)
    head = record_head(header)
    parts: list[Buffer] = [head, *views]
    struct.pack_into("<I", head, _CRC_AT, _checksum(parts))
    return parts


def record_head(header: RecordHeader, checksum: int = 0) -> bytearray:
    """A record up to its first tensor."""
    place, group = header.place, header.group.encode()
    head = bytearray(header.blob_offset)
    blob_bytes = len(header.safetensors_header) + header.payload_bytes
    _FIXED.pack_into(
        head,
        0,
        MAGIC,
        RECORD_VERSION,
        header.blob_offset,
        blob_bytes,
        checksum,
        place.length,
        header.position,
        header.row_start,
        len(group),
        0,
        header.namespace,
        place.parent,
    )
    tail = place.ids + group
    head[_FIXED.size : _FIXED.size + len(tail)] = tail
    return head + header.safetensors_header


def _checksum(parts: Sequence[Buffer]) -> int:
    """crc32 of a record in parts, the first of which reaches past the checksum's own bytes."""
    crc = head_checksum(parts[0])
    for part in parts[1:]:
        crc = zlib.crc32(part, crc)
    return crc


def head_checksum(head: Buffer) -> int:
    """The checksum of a record as far as `head` goes, which is past the checksum's own bytes."""
    return zlib.crc32(memoryview(head)[_CRC_END:], zlib.crc32(memoryview(head)[:_CRC_AT]))


def stored_checksum(head: Buffer) -> int:
    """The checksum that a record's first bytes carry."""
    return int.from_bytes(memoryview(head)[_CRC_AT:_CRC_END], "little")


def decode(buffer: memoryview) -> tuple[RecordHeader, dict[str, memoryview]]:
    """The header and a view of each tensor's bytes, in `buffer`, which must be exactly one record.

    Raises BadRecord for another magic, version or length, a wrong checksum, or fields that contradict each other.
    """
    view = byte_view(buffer)
    if view.nbytes < _FIXED.size:
        raise BadRecord(f"a record of {view.nbytes} bytes")
    (magic, version, blob_offset, blob_bytes, crc, n, position, row_start, group_bytes, zero, namespace, parent) = (
        _FIXED.unpack_from(view)
    )
    if magic != MAGIC or version != RECORD_VERSION:
        raise BadRecord("not a record of this version")
    names_end = _FIXED.size + 4 * n + group_bytes
    if blob_offset + blob_bytes != view.nbytes or blob_offset != _padded(names_end) or zero:
        raise BadRecord("a record of another length than it says")
    if crc != _checksum([view]):
        raise BadRecord("a record whose checksum is wrong")
    names = bytes(view[_FIXED.size : names_end])
    try:
        place = Place(parent, names[: 4 * n])
        specs, tensors = _decode_blob(view[blob_offset:])
        header = RecordHeader(namespace, names[4 * n :].decode(), place, position, row_start, specs)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"a record that contradicts itself: {error}") from error
    return header, tensors


def _decode_blob(blob: memoryview) -> tuple[tuple[TensorSpec, ...], dict[str, memoryview]]:
    """Specs and views of a safetensors blob whose tensors lie in order without gaps; ValueError otherwise."""
    start = 8 + int.from_bytes(blob[:8], "little")
    specs: list[TensorSpec] = []
    tensors: dict[str, memoryview] = {}
    for name, field in json.loads(bytes(blob[8:start])).items():
        spec = TensorSpec(name, field["dtype"], tuple(field["shape"]))
        end = start + spec.nbytes
        specs.append(spec)
        tensors[name] = blob[start:end]
        start = end
    if start != blob.nbytes:
        raise ValueError(f"tensors end at {start} of {blob.nbytes} bytes")
    return tuple(specs), tensors
