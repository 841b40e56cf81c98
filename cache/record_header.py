"""What a record says of itself: where it stands, which rows it holds, how its tensors are shaped."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ..errors import CacheTrouble
from .keys import BLOCK, KEY_BYTES, Place

FIXED_BYTES: Final = 128
"""Bytes of a record before the elements of its place."""

MOST_NAME_BYTES: Final = 256
"""Of a group's or a conversation's name."""

_ALIGN: Final = 64

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

    `position` counts from the sequence's start; a state that has no rows has row_start == position. `user` is the
    conversation that wrote it, empty if it has no name. ValueError if the numbers contradict each other.
    """

    namespace: bytes
    group: str
    place: Place
    position: int
    row_start: int
    tensors: tuple[TensorSpec, ...]
    user: str = ""

    def __post_init__(self) -> None:
        if len(self.namespace) != KEY_BYTES:
            raise ValueError(f"a namespace of {len(self.namespace)} bytes")
        if not 0 <= self.row_start <= self.position:
            raise ValueError(f"rows [{self.row_start}, {self.position})")
        if self.position < self.place.length or (self.position - self.place.length) % BLOCK:
            raise ValueError(f"position {self.position} is not {self.place.length} past a block edge")
        if max(len(self.group.encode()), len(self.user.encode())) > MOST_NAME_BYTES:
            raise ValueError("a name that is too long")

    @cached_property
    def names(self) -> bytes:
        """What follows the fixed part: the place's elements, the group, the user."""
        return self.place.ids + self.group.encode() + self.user.encode()

    @cached_property
    def blob_offset(self) -> int:
        """Bytes before the safetensors blob."""
        return padded(FIXED_BYTES + len(self.names))

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
        text = text.ljust(padded(8 + len(text)) - 8)
        return len(text).to_bytes(8, "little") + text


def padded(length: int) -> int:
    """The next multiple of what records are aligned to."""
    return -(-length // _ALIGN) * _ALIGN
