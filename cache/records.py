"""One stored record: a small header that says what it is, then the tensors in safetensors layout.

All numbers are little-endian. Checksums are zlib.crc32. The *head* is everything before the tensors.

    offset  bytes  field
         0      8  magic 89 4D 4C 58 4B 56 0D 0A
         8      4  record version, 2
        12      4  offset of the blob, a multiple of 64
        16      8  bytes in the blob; the record ends with it
        24      4  checksum of the whole record but these four bytes
        28      4  n, elements in the place (1 to 256)
        32      8  position
        40      8  row_start
        48      4  g, bytes of the group's name (at most 256)
        52      4  u, bytes of the name of the conversation that wrote it (at most 256)
        56     32  namespace
        88     32  key of the place's parent
       120      4  checksum of the head but the two checksums
       124      4  zero
       128     4n  elements of the place, int32
    128+4n      g  group, UTF-8
                u  conversation, UTF-8
                   zeros up to the blob
      blob         a complete safetensors file: 8 bytes of length, JSON padded with spaces so that the tensors start
                   at a multiple of 64 from the record's start, the tensors in the order of `RecordHeader.tensors`

A kept file is looked through by heads alone, so the head can be trusted without reading the tensors.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from .keys import Place as Place
from .record_header import DTYPE_BYTES as DTYPE_BYTES
from .record_header import FIXED_BYTES, MOST_NAME_BYTES, padded
from .record_header import BadRecord as BadRecord
from .record_header import RecordHeader as RecordHeader
from .record_header import TensorSpec as TensorSpec

MAGIC: Final = b"\x89MLXKV\r\n"
RECORD_VERSION: Final = 2
_FIXED: Final = struct.Struct("<8sIIQIIQQII32s32sII")
_CRC_AT: Final = 24
_CRC_END: Final = 28
_HEAD_CRC_AT: Final = 120
_HEAD_CRC_END: Final = 124
_LONGEST_JSON: Final = 1 << 26

Buffer = bytes | bytearray | memoryview


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
    """A record up to its first tensor; `checksum` is the whole record's."""
    head = bytearray(header.blob_offset)
    _FIXED.pack_into(
        head,
        0,
        MAGIC,
        RECORD_VERSION,
        header.blob_offset,
        len(header.safetensors_header) + header.payload_bytes,
        checksum,
        header.place.length,
        header.position,
        header.row_start,
        len(header.group.encode()),
        len(header.user.encode()),
        header.namespace,
        header.place.parent,
        0,
        0,
    )
    head[FIXED_BYTES : FIXED_BYTES + len(header.names)] = header.names
    head += header.safetensors_header
    struct.pack_into("<I", head, _HEAD_CRC_AT, _head_checksum(head))
    return head


def _checksum(parts: Sequence[Buffer]) -> int:
    """crc32 of a record in parts, the first of which reaches past the checksum's own bytes."""
    crc = checksum_so_far(parts[0])
    for part in parts[1:]:
        crc = zlib.crc32(part, crc)
    return crc


def checksum_so_far(head: Buffer) -> int:
    """The checksum of a record as far as `head` goes, which is past the checksum's own bytes."""
    return zlib.crc32(memoryview(head)[_CRC_END:], zlib.crc32(memoryview(head)[:_CRC_AT]))


def _head_checksum(head: Buffer) -> int:
    """crc32 of a head but for the two checksums in it."""
    view = memoryview(head)
    return zlib.crc32(view[_HEAD_CRC_END:], zlib.crc32(view[_CRC_END:_HEAD_CRC_AT], zlib.crc32(view[:_CRC_AT])))


def stored_checksum(head: Buffer) -> int:
    """The checksum that a record's first bytes carry."""
    return int.from_bytes(memoryview(head)[_CRC_AT:_CRC_END], "little")


class _Fixed(NamedTuple):
    """The fixed part of a record, as unpacked."""

    magic: bytes
    version: int
    blob_offset: int
    blob_bytes: int
    checksum: int
    elements: int
    position: int
    row_start: int
    group_bytes: int
    user_bytes: int
    namespace: bytes
    parent: bytes
    head_checksum: int
    zero: int


def _fixed(view: memoryview) -> _Fixed:
    """The fixed part, checked for what it alone can show; BadRecord otherwise."""
    if view.nbytes < FIXED_BYTES:
        raise BadRecord(f"a record of {view.nbytes} bytes")
    fixed = _Fixed(*_FIXED.unpack_from(view))
    if fixed.magic != MAGIC or fixed.version != RECORD_VERSION:
        raise BadRecord("not a record of this version")
    names_end = FIXED_BYTES + 4 * fixed.elements + fixed.group_bytes + fixed.user_bytes
    too_long = max(fixed.group_bytes, fixed.user_bytes) > MOST_NAME_BYTES
    if fixed.blob_offset != padded(names_end) or fixed.zero or too_long:
        raise BadRecord("a record of another length than it says")
    return fixed


def head_length(start: memoryview) -> int:
    """Bytes of the head of the record that begins so, of which its first 2048 must be there, or all there are.

    BadRecord if no record of this version begins so.
    """
    fixed = _fixed(start)
    json_at = fixed.blob_offset + 8
    if start.nbytes < json_at:
        raise BadRecord("a record that ends too early")
    length = int.from_bytes(start[fixed.blob_offset : json_at], "little")
    if length > min(_LONGEST_JSON, max(0, fixed.blob_bytes - 8)):
        raise BadRecord("a record of another length than it says")
    return json_at + length


def decode_head(head: memoryview) -> tuple[RecordHeader, int]:
    """The header and the whole record's checksum, from `head`, which must be exactly the head of one record.

    Raises BadRecord for a head that is damaged, or contradicts itself. Of the tensors nothing is known.
    """
    fixed = _fixed(head)
    if fixed.head_checksum != _head_checksum(head):
        raise BadRecord("a record whose head is damaged")
    names = bytes(head[FIXED_BYTES : fixed.blob_offset])
    ids_end, group_end = 4 * fixed.elements, 4 * fixed.elements + fixed.group_bytes
    try:
        place = Place(fixed.parent, names[:ids_end])
        specs = _specs(head[fixed.blob_offset + 8 :])
        group, user = names[ids_end:group_end].decode(), names[group_end : group_end + fixed.user_bytes].decode()
        header = RecordHeader(fixed.namespace, group, place, fixed.position, fixed.row_start, specs, user)
        if header.nbytes != fixed.blob_offset + fixed.blob_bytes:
            raise ValueError(f"tensors of {header.payload_bytes} bytes")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"a record that contradicts itself: {error}") from error
    return header, fixed.checksum


def decode(buffer: memoryview) -> tuple[RecordHeader, dict[str, memoryview]]:
    """The header and a view of each tensor's bytes, in `buffer`, which must be exactly one record.

    Raises BadRecord for another magic, version or length, a wrong checksum, or fields that contradict each other.
    """
    view = byte_view(buffer)
    fixed = _fixed(view)
    if fixed.blob_offset + fixed.blob_bytes != view.nbytes:
        raise BadRecord("a record of another length than it says")
    if fixed.checksum != _checksum([view]):
        raise BadRecord("a record whose checksum is wrong")
    start = head_length(view)
    header, _ = decode_head(view[:start])
    tensors: dict[str, memoryview] = {}
    for spec in header.tensors:
        tensors[spec.name] = view[start : start + spec.nbytes]
        start += spec.nbytes
    return header, tensors


def _specs(text: memoryview) -> tuple[TensorSpec, ...]:
    """The tensors that a safetensors header lists, in order; ValueError, TypeError or KeyError if it is none."""
    fields = json.loads(bytes(text))
    return tuple(TensorSpec(name, field["dtype"], tuple(field["shape"])) for name, field in fields.items())
