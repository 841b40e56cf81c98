"""Load a model with its vision part, through mlx-vlm; the folder is a view without code (guard)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelUnsupported
from . import backend, guard
from .vision_kind import has_vision
from .weights import WeightFile

_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_REWRITTEN = "F8_E8M0"
_TOWER_NAMES = ("vision", "visual")


def loads_vision(config: dict[str, Any], files: Sequence[WeightFile]) -> bool:
    """Whether the folder's model is run by mlx-vlm: it has a vision part, weights for it, and mlx-vlm knows it.

    Conversions for mlx-lm leave the tower's weights out; those run as text.
    """
    if not has_vision(config) or not guard.is_vision_architecture(config):
        return False
    return any(word in name for file in files for name in file.tensors for word in _TOWER_NAMES)


def check_weights(name: str, files: Sequence[WeightFile]) -> None:
    """ModelUnsupported for weights that mlx-vlm reads only by rewriting their file in place."""
    if any(tensor["dtype"] == _REWRITTEN for file in files for tensor in file.tensors.values()):
        raise ModelUnsupported(
            f"{name} has {_REWRITTEN} weights, which mlx-vlm loads by changing the file", "use another conversion of it"
        )


def load_vision_model(shown: Path) -> tuple[Any, dict[str, Any]]:
    """mlx-vlm's module with its parameters evaluated in the backend's dtype, and config.json as mlx-lm reads it."""
    from mlx_lm.utils import load_config  # with the end tokens of generation_config.json, as for text models
    from mlx_vlm.utils import load_model

    model = load_model(shown, lazy=True, trust_remote_code=False)
    backend.evaluate(model)
    return model, load_config(shown)


def load_processor(shown: Path) -> tuple[Any, str]:
    """mlx-vlm's processor of the folder, None if it can't be had (some need torch), and the cause in a few words."""
    from mlx_vlm.utils import load_processor as load

    try:
        with contextlib.redirect_stderr(None):
            processor = load(shown, False, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever a processor's own code raises, the model still talks
        return None, " ".join(str(error).split())[:200] or type(error).__name__
    if not hasattr(processor, "image_processor"):
        return None, "it has no image processor"
    return processor, ""


def processor_settings(folder: Path, processor: Any) -> str:
    """Who lays pictures out, as hex: the classes and the settings. Part of what cached KV belongs to."""
    digest = hashlib.sha256()
    for part in (processor, getattr(processor, "image_processor", None)):
        digest.update(type(part).__name__.encode() + b"\0")
    for name in _PROCESSOR_FILES:
        with contextlib.suppress(OSError):
            digest.update(name.encode() + (folder / name).read_bytes() + b"\0")
    return digest.hexdigest()
