"""Whether mlxchat can rewind a model's cache, told from the library's source without importing it.

Only a forecast, for lists: the engine tries every class itself when the model is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import guard

_REWOUND = {
    *("KVCache", "SimpleKVCache", "ConcatenateKVCache", "QuantizedKVCache", "ChunkedKVCache", "RotatingKVCache"),
    *("BufferedRotatingKVCache", "ArraysCache", "MambaCache"),
}
_MAKE_CACHE = re.compile(r"^( *)def make_cache\(.*?(?=^\1\S|\Z)", re.M | re.S)
_CLASS = re.compile(r"\b([A-Z]\w*Cache)\(")
_SINKS = re.compile(r"RotatingKVCache\([^)]*\bkeep\s*=\s*[1-9]")


def can_rewind(config: dict[str, Any], library: str) -> bool:
    """Whether all cache classes that the architecture makes are known here. `library`: "mlx_lm" or "mlx_vlm"."""
    for file in _sources(library, str(config.get("model_type", ""))):
        for body in _MAKE_CACHE.finditer(file.read_text(encoding="utf-8")):
            if set(_CLASS.findall(body[0])) - _REWOUND or _SINKS.search(body[0]):
                return False
    return True


def _sources(library: str, model_type: str) -> Iterator[Path]:
    """The files of the architecture's module, or package."""
    found = guard.module_path(library, model_type)
    if found is not None:
        yield from sorted(found.glob("*.py")) if found.is_dir() else (found,)
