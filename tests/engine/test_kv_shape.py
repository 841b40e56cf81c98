"""What the configs of real families say about their caches, against figures known from their model cards."""

from __future__ import annotations

from typing import Any

import pytest
from mlxchat.engine.kv_shape import cache_shape, context_limit, layer_kinds

pytestmark = pytest.mark.exact

SMOLLM2 = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}
GEMMA3_270M = {
    "num_hidden_layers": 18,
    "hidden_size": 640,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}
QWEN35_9B = {
    "text_config": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "full_attention_interval": 4,
        "max_position_embeddings": 262144,
    }
}
KIB = 1024


@pytest.mark.parametrize(
    ("config", "per_256"),
    [(SMOLLM2, 5.625 * KIB * KIB), (GEMMA3_270M, 0.75 * KIB * KIB), (QWEN35_9B, 8 * KIB * KIB)],
    ids=["smollm2", "gemma3", "qwen3.5"],
)
def test_global_bytes(config: dict[str, Any], per_256: float) -> None:
    assert 256 * (cache_shape(config, 2).bytes_per_token or 0) == per_256


def test_windows_are_counted_once() -> None:
    shape = cache_shape(GEMMA3_270M, 2)
    assert shape.window_bytes == 15 * 512 * 2 * 256 * 2
    assert shape.total_bytes(1000) == 1000 * 3 * 1024 + shape.window_bytes


def test_latent_attention_counts_its_latent() -> None:
    config = {"num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert cache_shape(config, 2).bytes_per_token == 2 * 576 * 2


def test_layer_types_win() -> None:
    types = ["sliding_attention", "full_attention", "linear_attention", "conv"]
    assert layer_kinds({"layer_types": types}, 4) == ["local", "global", "recurrent", "recurrent"]


def test_wider_global_layers() -> None:
    config = {**GEMMA3_270M, "global_head_dim": 512, "num_global_key_value_heads": 2}
    assert cache_shape(config, 2).bytes_per_token == 3 * 2 * 2 * 512 * 2


def test_a_config_that_does_not_say() -> None:
    assert cache_shape({}, 2).bytes_per_token is None
    assert cache_shape({}, 2).total_bytes(10) == 0


@pytest.mark.parametrize(
    ("config", "limit"),
    [({"max_position_embeddings": 8192}, 8192), (QWEN35_9B, 262144), ({"n_positions": 1024}, 1024), ({}, 32768)],
)
def test_context(config: dict[str, Any], limit: int) -> None:
    assert context_limit(config) == limit
