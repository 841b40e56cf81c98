"""What the vision tower made of each picture, kept by picture: adding one encodes only that one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from ..cache.picture_records import PictureRecords

MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class ImageFeatures:
    """One picture's rows, evaluated.

    embeds      what the language model gets at each position of the span, [1, n, width]
    per_layer   further inputs at each position (Gemma 4), [1, n, layers, width], or None
    deepstack   what is added behind the first layers at each placeholder (Qwen3-VL), [placeholders, width] per layer
    """

    embeds: mx.array
    per_layer: mx.array | None = None
    deepstack: tuple[mx.array, ...] = ()

    @property
    def arrays(self) -> list[mx.array]:
        """All of them, in a fixed order: those of four dimensions are `per_layer`, of two `deepstack`."""
        return [self.embeds, *([] if self.per_layer is None else [self.per_layer]), *self.deepstack]

    @classmethod
    def of(cls, arrays: list[mx.array]) -> ImageFeatures:
        """From `arrays`."""
        embeds, *more = arrays
        per_layer = next((array for array in more if array.ndim == 4), None)
        return cls(embeds, per_layer, tuple(array for array in more if array.ndim == 2))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


class FeatureCache:
    """In memory, least recently used first out, bounded in bytes; and in the store, if there is one.

    A picture is kept for the conversations that it was fed in: when the last of them is deleted, so is it. `encoded`
    and `reused` count what `get` had to do, ever.
    """

    def __init__(self, records: PictureRecords | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.encoded = 0
        self.reused = 0
        self._records = records
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self._users: dict[bytes, set[str]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return sum(features.nbytes for features in self._kept.values())

    def get(
        self, digest: bytes, encode: Callable[[], ImageFeatures], user: str = "", *, again: bool = False
    ) -> ImageFeatures:
        """The features of a picture for a conversation, encoded now if they aren't held.

        again    for a later part of the same picture
        """
        features = self._kept.get(digest) or self._stored(digest, user)
        if features is None:
            features = encode()
            self.encoded += 1
        else:
            self.reused += not again
        if self._records is not None and not again:
            self._records.put(digest, features.arrays, user)
        self._kept[digest] = features
        self._kept.move_to_end(digest)
        self._users.setdefault(digest, set()).add(user)
        while self.nbytes > self._most_bytes and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))
        return features

    def forget(self, user: str) -> None:
        """The conversation is deleted: let go of what only it used. Its records go with the store's."""
        for digest, users in list(self._users.items()):
            users.discard(user)
            if not users:
                self._drop(digest)

    def clear(self) -> None:
        """Let go of everything in memory."""
        self._kept.clear()
        self._users.clear()

    def _drop(self, digest: bytes) -> None:
        del self._kept[digest], self._users[digest]

    def _stored(self, digest: bytes, user: str) -> ImageFeatures | None:
        arrays = self._records.get(digest, user) if self._records is not None else None
        return ImageFeatures.of(arrays) if arrays is not None else None
