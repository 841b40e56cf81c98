"""Who a position is: the namespace, the chain of block keys, and the place of a record below them.

All comparison in this room is on *elements*: one int32 for each position. A text position's element is its token id.
The positions of an image carry a stream drawn from the image's hash instead (negative, so never a token id), because
two pictures share their placeholder ids. So one array compare tells text and pictures apart, and an element array
alone determines its keys.

    key_0 = sha256(namespace)
    key_i = sha256(key_{i-1} + the block's 256 elements as little-endian int32)

An image of n positions brings 31 n bits of its hash into the keys and compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 256
"""Token positions in a block; blocks start at multiples of it."""

FORMAT_VERSION: Final = 2
"""Part of every namespace: records of another version are never found."""

KEY_BYTES: Final = 32
_ID_BYTES: Final = 4

Ids = NDArray[np.int32]
ImageHashes = Sequence[tuple[int, int, bytes]]
"""(start, end, digest) for each image: its positions are [start, end)."""


def namespace_key(fields: Mapping[str, str]) -> bytes:
    """The 32-byte name of all sequences that may share records: weights, dtype, layout, tenant and so on.

    Fields are taken in the order of their names and length-prefixed, so no two mappings encode alike.
    """
    digest = hashlib.sha256(b"mlxchat-kv %d" % FORMAT_VERSION)
    for name in sorted(fields):
        for word in (name.encode(), fields[name].encode()):
            digest.update(len(word).to_bytes(8, "little") + word)
    return digest.digest()


def elements(ids: Ids, image_hashes: ImageHashes = ()) -> Ids:
    """`ids` (shape [n], int32) with the positions of each image replaced by a stream of its hash.

    Spans are clipped to n, so a prefix of a sequence has a prefix of its elements. Without images no copy is made.
    Raises ValueError for ids that are not one-dimensional or spans that are empty or negative.
    """
    out = np.ascontiguousarray(ids, dtype="<i4")
    if out.ndim != 1:
        raise ValueError(f"ids must have one dimension, not {out.ndim}")
    if not image_hashes:
        return out
    out = out.copy()
    for start, end, digest in image_hashes:
        if not 0 <= start < end:
            raise ValueError(f"an image can't span [{start}, {end})")
        held = max(0, min(end, out.size) - start)
        stream = np.frombuffer(hashlib.shake_256(digest).digest(held * _ID_BYTES), dtype="<i4")
        out[start : start + held] = stream | np.int32(-(2**31))
    return out


def root_key(namespace: bytes) -> bytes:
    """key_0: the parent of everything before the first block edge."""
    return hashlib.sha256(namespace).digest()


def block_key(parent: bytes, block: bytes) -> bytes:
    """The key after a full block: its parent's key and its elements (1024 bytes)."""
    return hashlib.sha256(parent + block).digest()


def chain_keys(namespace: bytes, ids: Ids, image_hashes: ImageHashes = ()) -> list[bytes]:
    """[key_0, key_1, … key_n] for the n full blocks of `ids`."""
    chain = Chain(namespace)
    chain.append(elements(ids, image_hashes))
    return chain.keys


class Chain:
    """The keys of one growing sequence: appending hashes only the blocks that became full."""

    def __init__(self, namespace: bytes) -> None:
        self.keys = [root_key(namespace)]
        self._rest = b""

    def __len__(self) -> int:
        """Positions appended so far."""
        return (len(self.keys) - 1) * BLOCK + len(self._rest) // _ID_BYTES

    def append(self, new: Ids) -> list[bytes]:
        """Take more elements; returns the keys of the blocks they completed (also kept in `keys`)."""
        held = self._rest + np.ascontiguousarray(new, dtype="<i4").tobytes()
        step = BLOCK * _ID_BYTES
        whole = len(held) // step * step
        first = len(self.keys)
        for start in range(0, whole, step):
            self.keys.append(block_key(self.keys[-1], held[start : start + step]))
        self._rest = held[whole:]
        return self.keys[first:]

    def truncate(self, length: int) -> None:
        """Forget the keys past `length` positions; only block edges can be gone back to (ValueError otherwise)."""
        if length % BLOCK or not 0 <= length <= len(self):
            raise ValueError(f"can't cut a chain of {len(self)} positions at {length}")
        del self.keys[length // BLOCK + 1 :]
        self._rest = b""


@dataclass(frozen=True)
class Place:
    """A position by what leads to it, whatever sequence it was met in.

    parent  key of the last block edge strictly before the position
    ids     the 1 to 256 elements after that edge, as little-endian int32 bytes; 256 of them make a full block
    """

    parent: bytes
    ids: bytes

    def __post_init__(self) -> None:
        if len(self.parent) != KEY_BYTES or len(self.ids) % _ID_BYTES or not 1 <= self.length <= BLOCK:
            raise ValueError(f"no place: a parent of {len(self.parent)} bytes and {len(self.ids)} bytes of ids")

    @classmethod
    def at(cls, keys: Sequence[bytes], ids: Ids, position: int) -> Place:
        """The place of `position` (1 … len(ids)) in a sequence, from its chain keys and elements."""
        if not 1 <= position <= ids.size:
            raise ValueError(f"no place at position {position} of {ids.size}")
        edge = (position - 1) // BLOCK
        return cls(keys[edge], np.ascontiguousarray(ids[edge * BLOCK : position], dtype="<i4").tobytes())

    @property
    def length(self) -> int:
        """Positions after the parent's edge."""
        return len(self.ids) // _ID_BYTES

    @property
    def is_block(self) -> bool:
        """Whether it ends at the next block edge, so that other places can be below it."""
        return self.length == BLOCK

    @property
    def elements(self) -> Ids:
        """`ids` as a read-only int32 array of shape [length]."""
        return np.frombuffer(self.ids, dtype="<i4")

    @property
    def key(self) -> bytes:
        """The chain key after this place. Only a full block has one (ValueError otherwise)."""
        if not self.is_block:
            raise ValueError("only a full block has a key")
        return block_key(self.parent, self.ids)


class Span(Protocol):
    """A picture at the positions [start, end); `digest` tells it from others."""

    @property
    def start(self) -> int:
        """Its first position."""
        ...

    @property
    def end(self) -> int:
        """The position behind it."""
        ...

    @property
    def digest(self) -> bytes:
        """The hash that its elements are drawn from."""
        ...


def as_elements(ids: Ids, pictures: Sequence[Span]) -> Ids:
    """What is compared and hashed of `ids` from position 0 on (int32 [n]): pictures by what they show."""
    return elements(ids, [(span.start, span.end, span.digest) for span in pictures])
