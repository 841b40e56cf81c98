"""How much of a model's context fits into memory, from small files alone: known before a load."""

from __future__ import annotations

import sys
from typing import Any

from . import backend, guard
from .kv_shape import CacheShape, cache_shape, context_limit, text_config
from .models import ModelFolder, weight_files

_METAL_SHARE = 0.7
_HALF = ("bfloat16", "float16")


def usable_memory() -> int:
    """About what a model may use, in bytes. On macOS a share of the memory, so that asking doesn't start Metal."""
    if sys.platform == "darwin":
        import psutil

        return int(psutil.virtual_memory().total * _METAL_SHARE)
    return guard.memory_limit()[0]


def largest_context(shape: CacheShape, weight_bytes: int, limit: int, memory: int) -> int:
    """The most positions, `limit` at most, whose KV fits beside the weights; 0 where those alone don't fit."""
    room = int(memory * guard.HEADROOM) - weight_bytes - shape.window_bytes
    if room <= 0:
        return 0
    return min(limit, room // shape.bytes_per_token) if shape.bytes_per_token else limit


def fitting_context(folder: ModelFolder, config: dict[str, Any]) -> int:
    """The same for a model on disk, its weights guessed from the sizes of their files: headers take time to read."""
    size = sum(file.stat().st_size for file in weight_files(folder.path) if file.exists())
    computed = 4 if backend.compute_dtype() == "float32" else 2
    if computed == 4 and not _is_quantized(config) and _stored_dtype(config) in _HALF:
        size *= 2
    return largest_context(cache_shape(config, computed), size, context_limit(config), usable_memory())


def _is_quantized(config: dict[str, Any]) -> bool:
    return bool(config.get("quantization") or text_config(config).get("quantization"))


def _stored_dtype(config: dict[str, Any]) -> str:
    text = text_config(config)
    return str(text.get("torch_dtype") or text.get("dtype") or "bfloat16")
