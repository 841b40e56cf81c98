"""What config.json says about size: the context's length, and what the KV cache takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_CONTEXT_KEYS = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "n_positions", "seq_length", "n_ctx")
_UNKNOWN_CONTEXT = 32768


@dataclass(frozen=True)
class CacheShape:
    """An estimate from the config alone. Bytes are for keys and values of all layers of the kind.

    bytes_per_token  what one more position adds to the global layers; None if the config doesn't say
    window_bytes     what the local layers hold once their windows are full
    """

    bytes_per_token: int | None
    window_bytes: int

    def total_bytes(self, tokens: int) -> int:
        """Bytes at `tokens` positions; unknown layers count as nothing."""
        return (self.bytes_per_token or 0) * tokens + self.window_bytes


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language part of a config: its `text_config` over the rest, or all of it."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def context_limit(config: dict[str, Any]) -> int:
    """Most positions the model was made for; 32768 where the config doesn't say (recurrent models have no limit)."""
    text = text_config(config)
    for key in _CONTEXT_KEYS:
        value = text.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return _UNKNOWN_CONTEXT


def cache_shape(config: dict[str, Any], itemsize: int) -> CacheShape:
    """The KV cache's size for values of `itemsize` bytes."""
    text = text_config(config)
    layers = text.get("num_hidden_layers")
    row = _row_values(text)
    if not isinstance(layers, int) or row is None:
        return CacheShape(None, 0)
    kinds = layer_kinds(text, layers)
    window = text.get("sliding_window") or 0
    windows = kinds.count("local") * int(window) * row * itemsize
    return CacheShape(kinds.count("global") * _row_values(text, of_global=True) * itemsize, windows)  # type: ignore[operator]


def layer_kinds(text: dict[str, Any], layers: int) -> list[str]:
    """`global`, `local` or `recurrent` for each layer, from whichever of the usual keys the config has."""
    types = text.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        return [_kind(str(name)) for name in types]
    if interval := text.get("full_attention_interval"):
        return ["recurrent" if (i + 1) % interval else "global" for i in range(layers)]
    if text.get("sliding_window") and (pattern := text.get("sliding_window_pattern")):
        return ["local" if (i + 1) % pattern else "global" for i in range(layers)]
    return ["global"] * layers


def _kind(name: str) -> str:
    if "full" in name or name in ("attention", "global"):
        return "global"
    return "local" if "sliding" in name or "chunked" in name else "recurrent"


def _row_values(text: dict[str, Any], of_global: bool = False) -> int | None:
    """Values that one position takes in one layer, keys and values together."""
    if isinstance(rank := text.get("kv_lora_rank"), int):
        return rank + int(text.get("qk_rope_head_dim") or 0)
    heads = text.get("num_attention_heads") or text.get("n_head")
    hidden = text.get("hidden_size") or text.get("n_embd")
    if not isinstance(heads, int) or not isinstance(hidden, int):
        return None
    kv_heads = text.get("num_key_value_heads") or heads
    width = text.get("head_dim") or hidden // heads
    if of_global:
        kv_heads = text.get("num_global_key_value_heads") or kv_heads
        width = text.get("global_head_dim") or width
    return 2 * int(kv_heads) * int(width)
