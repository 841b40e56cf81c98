"""What a safetensors file says about itself in its first bytes: whole or not, its size in memory, who it is."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelIncomplete

_MAX_HEADER = 100 * 1024 * 1024
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


@dataclass(frozen=True)
class WeightFile:
    """One weight file. `header` is the raw JSON header, `tensors` its entries without the metadata."""

    path: Path
    size: int
    mtime_ns: int
    header: bytes
    tensors: dict[str, Any]

    def memory_bytes(self, float_bytes: int | None) -> int:
        """Bytes once loaded; floats take `float_bytes` each, or what they are stored in if that is None."""
        total = 0
        for tensor in self.tensors.values():
            start, end = tensor["data_offsets"]
            if float_bytes is not None and tensor["dtype"] in _FLOATS:
                total += math.prod(tensor["shape"]) * float_bytes
            else:
                total += end - start
        return total


def read_header(path: Path) -> WeightFile:
    """Read and check a file's header; ModelIncomplete if it is broken or the file is cut short."""
    try:
        stat = path.stat()
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER, stat.st_size - 8):
                raise ValueError("no header")
            header = file.read(length)
        tensors = json.loads(header)
        tensors.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelIncomplete(
            f"{path.name} is not a readable safetensors file: {error}", "fetch the model again"
        ) from error
    if stat.st_size < 8 + length + end:
        raise ModelIncomplete(
            f"{path.name} is cut short: {stat.st_size} of {8 + length + end} bytes", "fetch the model again"
        )
    return WeightFile(path, stat.st_size, stat.st_mtime_ns, header, tensors)


def fingerprint(config_file: Path, files: list[WeightFile]) -> str:
    """Who these weights are: sha256 of config.json and of each file's name, size, mtime and header, as hex.

    Cheap on purpose: it never reads the weights, and a touched file is another model, which costs a cold start only.
    """
    digest = hashlib.sha256(config_file.read_bytes())
    for file in files:
        digest.update(json.dumps([file.path.name, file.size, file.mtime_ns]).encode())
        digest.update(hashlib.sha256(file.header).digest())
    return digest.hexdigest()
