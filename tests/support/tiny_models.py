"""Small random-weight models built from mlx-lm's own classes, whole folders that load like any other."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes
from mlxchat.engine.random_models import draw_weights
from support import tiny_architectures
from support.tiny_architectures import VOCAB

_COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 8192,
}
_SLIDING_4 = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {**_COMMON, "num_hidden_layers": 3, "rope_theta": 1e6, "tie_word_embeddings": True},
    "llama": {**_COMMON, "num_hidden_layers": 3, "rope_theta": 1e4},
    "gemma3_text": {
        **_COMMON,
        "num_hidden_layers": 4,
        "sliding_window": 512,
        "sliding_window_pattern": 4,
        "query_pre_attn_scalar": 16,
    },
    "gemma3n": {
        "text_config": {
            **_COMMON,
            "model_type": "gemma3n_text",
            "num_hidden_layers": 8,
            "num_kv_shared_layers": 4,
            "vocab_size_per_layer_input": VOCAB,
            "sliding_window": 512,
            "rope_local_base_freq": 10000.0,
            "rope_theta": 1e6,
            "final_logit_softcapping": 30.0,
            "layer_types": _SLIDING_4 * 2,
            "activation_sparsity_pattern": [0.0] * 8,
            "hidden_size_per_layer_input": 16,
            "altup_num_inputs": 2,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_active_idx": 0,
            "laurel_rank": 8,
            "intermediate_size": [96] * 8,
        }
    },
    "gemma4_text": {
        **_COMMON,
        "num_hidden_layers": 8,
        "global_head_dim": 32,
        "vocab_size_per_layer_input": VOCAB,
        "num_kv_shared_layers": 4,
        "hidden_size_per_layer_input": 16,
        "sliding_window": 512,
        "sliding_window_pattern": 4,
        "layer_types": _SLIDING_4 * 2,
    },
    "gpt_oss": {
        **_COMMON,
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        },
    },
    "qwen3_5": {
        "text_config": {
            **_COMMON,
            "model_type": "qwen3_5_text",
            "num_hidden_layers": 4,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            "full_attention_interval": 4,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "type": "default",
                "mrope_section": [1, 1, 0],
                "rope_theta": 100000,
                "partial_rotary_factor": 0.25,
            },
        }
    },
}

CONFIGS |= tiny_architectures.CONFIGS

_PAIRED = ["sliding_attention", "full_attention"] * 2
SMALLER: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 128},
    "gemma3n": {
        "sliding_window": 128,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": _PAIRED,
        "activation_sparsity_pattern": [0.0] * 4,
        "intermediate_size": [96] * 4,
    },
    "gemma4_text": {
        "sliding_window": 128,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": _PAIRED,
        "sliding_window_pattern": 2,
    },
}
"""Changes for quick tests: windows that a short conversation is past, and two layers sharing what two others write."""


def build(kind: str, seed: int = 0, **changes: Any) -> nn.Module:
    """A model of `kind` with weights drawn at a scale that keeps its logits lively."""
    config = config_of(kind, **changes)
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    draw_weights(model, kind, seed)
    return model


class LanguagePart(nn.Module):
    """The language part of an mlx-vlm model, called as an mlx-lm model is: ids and caches in, logits out."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part

    def __call__(self, ids: mx.array, cache: Any = None) -> mx.array:
        return self.part(ids, cache=cache).logits

    def make_cache(self) -> list[Any]:
        return self.part.make_cache()


def build_vision_text(kind: str, seed: int = 0, **changes: Any) -> nn.Module:
    """The language part of mlx-vlm's `kind`, with random weights."""
    room = f"mlx_vlm.models.{kind}"
    part, config = importlib.import_module(f"{room}.language"), importlib.import_module(f"{room}.config")
    text = config.TextConfig.from_dict({**tiny_architectures.VISION_TEXT[kind], **changes})
    model = LanguagePart(part.LanguageModel(text))
    draw_weights(model, f"{kind}_text", seed)
    return model


def config_of(kind: str, **changes: Any) -> dict[str, Any]:
    """config.json of `kind`; changes go to the text_config where there is one."""
    config = json.loads(json.dumps(CONFIGS[kind]))
    config.get("text_config", config).update(changes)
    return {"model_type": kind, "architectures": ["Tiny"], **config}


def save(folder: Path, kind: str, seed: int = 0, **changes: Any) -> Path:
    """Write config.json and model.safetensors of a tiny model (the tokenizer comes from tiny_tokenizer)."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(build(kind, seed, **changes).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config_of(kind, **changes)))
    return folder
