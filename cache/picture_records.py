"""What a model's vision tower made of a picture, as records of the store: evicted, checked and bounded like KV."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import mlx.core as mx

from .keys import Place
from .layers import DTYPE_NAMES, host_view
from .records import TensorSpec
from .store import Store
from .tensors import TensorSink, cleared_tensors

GROUP: Final = "vision"


class PictureRecords:
    """The pictures of one namespace. A picture's place is its digest, below a key that no block of ids has.

    Engine thread only. Nothing here raises: what can't be written or read is a miss.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parent = hashlib.sha256(b"pictures" + store.namespace).digest()

    def put(self, digest: bytes, arrays: Sequence[mx.array], user: str = "") -> None:
        """Keep a picture's arrays, evaluated ones, for a conversation. digest: 32 bytes."""
        place = self._place(digest)
        if not self._store.accepts or self._store.contains(place, GROUP, user):
            return
        tensors = [TensorSpec(str(i), DTYPE_NAMES[array.dtype], tuple(array.shape)) for i, array in enumerate(arrays)]
        payload = [host_view(array).tobytes() for array in arrays]
        self._store.submit(place, GROUP, place.length, place.length, tensors, payload, wait=True, user=user)

    def get(self, digest: bytes, user: str = "") -> list[mx.array] | None:
        """A picture's arrays as they were put, which a conversation uses now; None if there is no good record."""
        place = self._place(digest)
        match = self._store.block(place.parent, place.elements)
        entry = match.groups.get(GROUP) if match is not None else None
        if entry is None:
            return None
        arrays = cleared_tensors(entry)
        mx.eval(arrays)
        if self._store.read([(entry, TensorSink.into(arrays))]):
            return None
        self._store.touch([place], [entry], user)
        return list(arrays.values())

    def _place(self, digest: bytes) -> Place:
        return Place(self._parent, digest)
