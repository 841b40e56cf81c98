"""What is known about a model folder without loading it: for `mlxchat models list` and `info`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import MlxchatError
from . import backend, guard, models
from .aliases import EMBEDDED
from .kv_shape import cache_shape, context_limit, text_config
from .memory_fit import largest_context, usable_memory
from .models import ModelFolder
from .reuse_support import can_rewind
from .user_aliases import user_aliases
from .vision_loader import loads_vision
from .weights import WeightFile, read_header

FIT_TOKENS = 8192


@dataclass(frozen=True)
class ModelInfo:
    """One line of the list. `problem` says why the model can't be used, "" if it can; sizes are bytes.

    kind          the config's model_type
    weights       how they are stored: "4-bit", "bfloat16", …
    memory_bytes  weights once loaded here, and a KV cache of 8192 positions
    vision        whether it takes pictures, and so is run by mlx-vlm
    runs_on       the library that runs it: "mlx-lm" or "mlx-vlm"
    fits          whether that fits into this machine's memory now
    fitting_context  the most positions whose KV fits beside the weights now; 0 where those alone don't fit
    reuse         whether mlxchat knows how to rewind its cache, as far as can be told without loading it
    aliases       what the user calls it
    """

    name: str
    origin: str
    path: str
    label: str
    disk_bytes: int
    kind: str
    weights: str
    context_limit: int
    vision: bool
    runs_on: str
    tools: bool
    reasoning: bool
    memory_bytes: int
    kv_bytes_per_token: int | None
    fits: bool
    fitting_context: int
    reuse: bool
    aliases: list[str]
    problem: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def list_models() -> list[ModelInfo]:
    """Every model on this machine, ours first."""
    return [describe(folder) for folder in models.on_disk()]


def info(name: str) -> ModelInfo:
    """What is known of the model that `name` resolves to. Raises as `models.resolve`."""
    return describe(models.resolve(name))


def describe(folder: ModelFolder) -> ModelInfo:
    """Read the folder's small files. Never raises for a bad folder: `problem` tells."""
    problem = ""
    config: dict[str, Any] = {}
    files: list[WeightFile] = []
    try:
        models.checked(folder)
        config = models.read_config(folder.path)
        files = [read_header(path) for path in models.weight_files(folder.path)]
        guard.check_code(folder)
    except MlxchatError as error:
        problem = error.message
    float_bytes = 4 if backend.compute_dtype() == "float32" else None
    shape = cache_shape(config, float_bytes or 2)
    limit = context_limit(config)
    sees = loads_vision(config, files)
    weights = sum(f.memory_bytes(float_bytes) for f in files)
    memory, usable = weights + shape.total_bytes(min(FIT_TOKENS, limit)), usable_memory()
    template = _template(folder.path)
    return ModelInfo(
        name=folder.name,
        origin=folder.origin,
        path=str(folder.path),
        label=EMBEDDED[folder.name].label if folder.origin == "mlxchat" else "",
        disk_bytes=sum(f.size for f in files),
        kind=str(config.get("model_type", "")),
        weights=_weights(config, files),
        context_limit=limit,
        vision=sees,
        runs_on="mlx-vlm" if sees else "mlx-lm",
        tools="tools" in template,
        reasoning="<think>" in template or "enable_thinking" in template or "reasoning" in template,
        memory_bytes=memory,
        kv_bytes_per_token=shape.bytes_per_token,
        fits=memory <= usable,
        fitting_context=largest_context(shape, weights, limit, usable),
        reuse=can_rewind(config, "mlx_vlm" if sees else "mlx_lm"),
        aliases=[alias for alias, name in user_aliases().items() if name == folder.name],
        problem=problem,
    )


def _weights(config: dict[str, Any], files: list[WeightFile]) -> str:
    quantization = config.get("quantization") or text_config(config).get("quantization")
    if isinstance(quantization, dict) and "bits" in quantization:
        return f"{quantization['bits']}-bit"
    sizes: dict[str, int] = {}
    for file in files:
        for tensor in file.tensors.values():
            start, end = tensor["data_offsets"]
            sizes[tensor["dtype"]] = sizes.get(tensor["dtype"], 0) + end - start
    most = max(sizes, key=lambda name: sizes[name], default="")
    return {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}.get(most, most)


def _template(path: Path) -> str:
    """The chat template's text, "" without one."""
    try:
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass
    try:
        template = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return ""
    return template if isinstance(template, str) else json.dumps(template or "")
