"""The options about the KV cache as given, turned into the engine's: where it goes, how large, in how many bits."""

from __future__ import annotations

from pathlib import Path

from ..engine.options import CacheOptions, KVQuantization
from ..errors import UsageError
from .sizes import parse_size

_BITS = (4, 8)
_GROUP_SIZES = (32, 64, 128)


def cache_options(no_cache: bool, cache_dir: str | None, cache_bytes: str | None) -> CacheOptions:
    """Where checkpoints go, and how large they may grow. Raises UsageError for a size that is none."""
    budget = None if cache_bytes is None else parse_size(cache_bytes, "--cache-bytes")
    directory = None if cache_dir is None else Path(cache_dir).expanduser()
    return CacheOptions(enabled=not no_cache, directory=directory, budget_bytes=budget)


def kv_quantization(bits: int | None, group_size: int | None) -> KVQuantization | None:
    """How KV is quantized; None without --kv-bits. Raises UsageError for numbers that MLX has no kernel for."""
    if bits is None:
        if group_size is not None:
            raise UsageError("--kv-group-size means nothing without --kv-bits", "add --kv-bits 8, or leave it out")
        return None
    if bits not in _BITS:
        raise UsageError(f"--kv-bits takes 4 or 8, not {bits}", "8 changes answers little, 4 more")
    if group_size is not None and group_size not in _GROUP_SIZES:
        raise UsageError(f"--kv-group-size takes 32, 64 or 128, not {group_size}", "64 is what you get without it")
    return KVQuantization(bits) if group_size is None else KVQuantization(bits, group_size)
