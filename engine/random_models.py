"""Small models with random weights, built from mlx-lm's own classes: the main kinds of cache, for the self-test."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

VOCABULARY = 1024

_COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
}
_RECURRENT = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rope_parameters": {
        "type": "default",
        "mrope_section": [1, 1, 0],
        "rope_theta": 100000,
        "partial_rotary_factor": 0.25,
    },
}
_CONVOLUTION = {
    "norm_eps": 1e-6,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_ff_dim": 48,
    "block_multiple_of": 16,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "full_attn_idxs": [1],
}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {**_COMMON, "num_hidden_layers": 3},
    "gemma3_text": {
        **_COMMON,
        "num_hidden_layers": 4,
        "sliding_window": 128,
        "sliding_window_pattern": 4,
        "query_pre_attn_scalar": 16,
    },
    "qwen3_5": {"text_config": {**_COMMON, **_RECURRENT, "model_type": "qwen3_5_text", "num_hidden_layers": 4}},
    "lfm2": {**_COMMON, **_CONVOLUTION, "num_hidden_layers": 3},
}
"""By model_type: global layers, windows, recurrent states, short convolutions."""


def build(model_type: str, seed: int = 0) -> Any:
    """A model of that type in float32, its weights drawn at a scale that keeps its logits lively."""
    config = {"model_type": model_type, "architectures": ["Random"], **CONFIGS[model_type]}
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    draw_weights(model, model_type, seed)
    model.eval()
    return model


def draw_weights(model: Any, model_type: str, seed: int) -> None:
    """Set every float weight of a module to float32 noise around 0; around 1 for norms whose model adds no 1 itself."""
    mx.random.seed(seed)
    drawn = []
    for name, value in tree_flatten(model.parameters()):
        if mx.issubdtype(value.dtype, mx.floating):
            noise = mx.random.normal(value.shape) * (0.25 if value.ndim > 1 else 0.1)
            scales = value.ndim == 1 and "norm" in name and model_type != "gemma3_text"
            value = (1 + noise if scales else noise).astype(mx.float32)
        drawn.append((name, value))
    model.load_weights(drawn)
    mx.eval(model.parameters())
