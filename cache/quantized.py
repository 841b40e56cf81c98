"""Full-attention caches that are quantized before their first token."""

from __future__ import annotations

from typing import Any


def use_quantized_caches(caches: list[Any], bits: int, group_size: int) -> list[Any]:
    """Put a quantized cache in the place of every KVCache, inside a CacheList too (none of them may hold rows yet).

    The library's own converter picks the class: mlx-lm and mlx-vlm each want theirs. mlx-lm converts a plain cache
    after its first call, so there the bits depend on how a prompt was cut; from the first token on they don't.
    Windows, chunks and states stay as they are: the libraries can't quantize them.
    """
    return [_quantized(cache, bits, group_size) for cache in caches]


def _quantized(cache: Any, bits: int, group_size: int) -> Any:
    kind = type(cache).__name__
    if kind == "KVCache":
        return cache.to_quantized(group_size=group_size, bits=bits)
    if kind == "CacheList":
        cache.caches = type(cache.caches)(_quantized(part, bits, group_size) for part in cache.caches)
    return cache
