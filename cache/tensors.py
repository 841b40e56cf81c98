"""Whole tensors of a record: allocated on the engine thread, filled on the reader's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from .index import Entry
from .layers import DTYPES, Bytes, host_view


def cleared_tensors(entry: Entry) -> dict[str, mx.array]:
    """Zeros, lazy, shaped as the record's tensors are, by their names."""
    return {spec.name: mx.zeros(spec.shape, DTYPES[spec.dtype]) for spec in entry.header.tensors}


@dataclass(frozen=True)
class TensorSink:
    """Fills arrays with a record's tensors of the same names. `views` are the arrays' bytes, flat."""

    views: Mapping[str, Bytes]

    @classmethod
    def into(cls, arrays: Mapping[str, mx.array]) -> TensorSink:
        """A sink into evaluated arrays, which nobody may use before the record is read."""
        return cls(
            {
                name: np.frombuffer(host_view(array), np.uint8) if array.nbytes else np.empty(0, np.uint8)
                for name, array in arrays.items()
            }
        )

    def __call__(self, tensors: dict[str, memoryview]) -> None:
        """Copy."""
        for name, data in tensors.items():
            self.views[name][:] = np.frombuffer(data, np.uint8)

    def places(self, name: str) -> list[memoryview]:
        """The tensor itself."""
        return [self.views[name].data]
