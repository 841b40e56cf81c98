"""LoRA adapters for the tiny models, in the layout of mlx-lm's trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx

RANK = 4


def write_adapter(path: Path, layers: int = 2, width: int = 64, **config: Any) -> Path:
    """An adapter of the query projections of the last `layers` layers, with random matrices."""
    path.mkdir()
    weights = {}
    for layer in range(3 - layers, 3):
        at = f"model.layers.{layer}.self_attn.q_proj"
        weights[f"{at}.lora_a"] = mx.random.normal((width, RANK))
        weights[f"{at}.lora_b"] = mx.random.normal((RANK, 64))
    mx.save_safetensors(str(path / "adapters.safetensors"), weights)
    parameters = {"rank": RANK, "scale": 2.0, "dropout": 0.5, "keys": ["self_attn.q_proj"]}
    whole = {
        "fine_tune_type": "lora",
        "num_layers": layers,
        "lora_parameters": parameters,
        "model": "org/base",
        **config,
    }
    (path / "adapter_config.json").write_text(json.dumps(whole))
    return path
