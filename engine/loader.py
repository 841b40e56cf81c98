"""Load a model that is on disk: no network, no code of its own, no chatter; a plain record of what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelUnsupported
from . import backend, guard, models, vision_loader
from .adapter import Adapter, apply_adapter
from .image_reader import ImageReader
from .kv_shape import cache_shape, context_limit, text_config
from .library_calls import named_errors, quiet
from .models import ModelFolder
from .vision_kind import has_vision
from .weights import WeightFile, fingerprint, read_header

EXPECTED_TOKENS = 8192


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run.

    model              mlx-lm's module, or mlx-vlm's if `is_vision`; weights evaluated
    tokenizer          mlx-lm's TokenizerWrapper
    config             config.json as mlx-lm read it; generation_config as on disk, {} if absent
    eos_token_ids      every id that ends a turn
    fingerprint        hex sha256 of config and weight headers: the identity of cached KV
    dtype              MLX name of the dtype it computes in
    weight_bytes       bytes of all parameters in memory
    context_limit      most positions, prompt and answer together
    kv_bytes_per_token bytes that one more position adds to the KV cache of the global layers; None if unknown
    is_vision          whether mlx-vlm runs it
    processor          mlx-vlm's processor; None for a text model, and where `no_processor` says why not
    processor_settings hex sha256 of what lays pictures out, "" without a processor
    adapter            what changes its weights
    """

    name: str
    folder: ModelFolder
    model: Any
    tokenizer: Any
    config: dict[str, Any]
    generation_config: dict[str, Any]
    eos_token_ids: frozenset[int]
    fingerprint: str
    dtype: str
    weight_bytes: int
    context_limit: int
    kv_bytes_per_token: int | None
    is_vision: bool = False
    processor: Any = None
    no_processor: str = ""
    processor_settings: str = ""
    adapter: Adapter | None = None


def load(folder: ModelFolder, *, expected_tokens: int = EXPECTED_TOKENS, adapter: Adapter | None = None) -> LoadedModel:
    """Load `folder`, with `adapter` over its weights. The calling thread is the one that will run the model.

    Raises ModelIncomplete, ModelUnsupported, ModelRefused, or ModelTooLarge if weights and a KV cache of
    `expected_tokens` positions would not fit.
    """
    backend.prepare()
    models.checked(folder)
    config = guard.check_code(folder)
    files = [read_header(path) for path in models.weight_files(folder.path)]
    _check_memory(folder, config, files, expected_tokens)
    is_vision = vision_loader.loads_vision(config, files)
    if is_vision:
        vision_loader.check_weights(folder.name, files)
        if adapter is not None:
            raise ModelUnsupported(f"--adapter is for text models, and {folder.name} sees pictures", "leave it out")
    processor, no_processor = None, ""
    with quiet(), guard.view(folder) as shown, named_errors(folder.name, "mlx-vlm" if is_vision else "mlx-lm"):
        if is_vision:
            model, config = vision_loader.load_vision_model(shown)
            processor, no_processor = vision_loader.load_processor(shown)
        else:
            model, config = _load_model(shown, adapter)
        tokenizer = _load_tokenizer(shown, config)
    generation = _generation_config(folder.path)
    kv = cache_shape(config, _itemsize(model))
    return LoadedModel(
        name=folder.name,
        folder=folder,
        model=model,
        tokenizer=tokenizer,
        config=config,
        generation_config=generation,
        eos_token_ids=frozenset(int(i) for i in tokenizer.eos_token_ids),
        fingerprint=fingerprint(folder.path / "config.json", files),
        dtype=_dtype(model),
        weight_bytes=_parameter_bytes(model),
        context_limit=context_limit(config),
        kv_bytes_per_token=kv.bytes_per_token,
        is_vision=is_vision,
        processor=processor,
        no_processor=no_processor,
        processor_settings=vision_loader.processor_settings(folder.path, processor) if processor is not None else "",
        adapter=adapter,
    )


def load_tokenizer(folder: ModelFolder) -> tuple[Any, dict[str, Any]]:
    """mlx-lm's TokenizerWrapper and config.json of a folder, which need not hold weights.

    Raises ModelIncomplete, ModelUnsupported or ModelRefused.
    """
    config = guard.check_code(folder)
    with quiet(), guard.view(folder) as shown, named_errors(folder.name, "mlx-lm"):
        return _load_tokenizer(shown, config), config


def image_reader_of(folder: ModelFolder, config: dict[str, Any], tokenizer: Any) -> ImageReader | None:
    """What lays pictures out for a model of which only `tokenizer` is loaded; None if it takes none."""
    placeholder = config.get("image_token_id", config.get("image_token_index"))
    if not has_vision(config) or not guard.is_vision_architecture(config) or not isinstance(placeholder, int):
        return None
    with quiet(), guard.view(folder) as shown:
        processor, _ = vision_loader.load_processor(shown)
    return ImageReader(processor, tokenizer, placeholder) if processor is not None else None


def _check_memory(folder: ModelFolder, config: dict[str, Any], files: list[WeightFile], tokens: int) -> None:
    float_bytes = 4 if backend.compute_dtype() == "float32" else None
    weights = sum(file.memory_bytes(float_bytes) for file in files)
    shape = cache_shape(config, float_bytes or 2)
    guard.check_memory(folder.name, weights, shape.total_bytes(min(tokens, context_limit(config))))


def _load_model(shown: Path, adapter: Adapter | None) -> tuple[Any, dict[str, Any]]:
    """The module with its parameters evaluated in the backend's dtype."""
    from mlx_lm.utils import load_model

    model, config = load_model(shown, lazy=True)
    if adapter is not None:
        apply_adapter(model, adapter)
    backend.evaluate(model)
    return model, config


def _load_tokenizer(shown: Path, config: dict[str, Any]) -> Any:
    from mlx_lm.utils import load_tokenizer

    return load_tokenizer(
        shown,
        {"local_files_only": True, "trust_remote_code": False, **_template_of_old(shown)},
        eos_token_ids=config.get("eos_token_id", text_config(config).get("eos_token_id")),
    )


def _template_of_old(shown: Path) -> dict[str, str]:
    """The template of folders that keep it in a file of its own kind (the first vision models do)."""
    if (shown / "chat_template.jinja").exists():
        return {}
    try:
        template = json.loads((shown / "chat_template.json").read_text(encoding="utf-8"))["chat_template"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {"chat_template": template} if isinstance(template, str) else {}


def _generation_config(path: Path) -> dict[str, Any]:
    """generation_config.json, or {}: a broken one costs defaults, not the chat."""
    try:
        value = json.loads((path / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _floats(model: Any) -> Iterator[Any]:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    for _, array in tree_flatten(model.parameters()):
        if mx.issubdtype(array.dtype, mx.floating):
            yield array


def _dtype(model: Any) -> str:
    """The dtype that most float parameters have."""
    sizes: dict[str, int] = {}
    for array in _floats(model):
        name = str(array.dtype).removeprefix("mlx.core.")
        sizes[name] = sizes.get(name, 0) + array.size
    return max(sizes, key=lambda name: sizes[name], default="float32")


def _itemsize(model: Any) -> int:
    return 4 if _dtype(model) == "float32" else 2


def _parameter_bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(int(array.nbytes) for _, array in tree_flatten(model.parameters()))
