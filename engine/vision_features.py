"""What the vision tower made of each picture, kept by picture: adding one encodes only that one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

MOST_BYTES = 512 * 2**20


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
        """All of them, in a fixed order."""
        return [self.embeds, *([] if self.per_layer is None else [self.per_layer]), *self.deepstack]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


class FeatureCache:
    """Least recently used first out, bounded in bytes. `encoded` and `reused` count what `get` had to do, ever."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.encoded = 0
        self.reused = 0
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(features.nbytes for features in self._kept.values())

    def get(self, digest: bytes, encode: Callable[[], ImageFeatures], *, again: bool = False) -> ImageFeatures:
        """The features of a picture, encoded now if they aren't held. `again`: a later part of the same picture."""
        features = self._kept.get(digest)
        if features is None:
            features = encode()
            self.encoded += 1
            self._kept[digest] = features
        else:
            self.reused += not again
        self._kept.move_to_end(digest)
        while self.nbytes > self._most_bytes and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return features
