"""What a model folder may not do: run its own Python, or need more memory than there is.

A model is never loaded from its folder but from a view of it: a temporary folder of links to everything except Python
files, with the keys that name code taken out of the JSON files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ModelRefused, ModelTooLarge, ModelUnsupported
from .aliases import size_text
from .models import ModelFolder, read_config
from .vision_kind import has_vision

_CODE_SUFFIXES = (".py", ".pyc", ".pyd", ".so", ".dylib", ".dll")
HEADROOM = 0.95
# A module of an architecture defines or imports Model; its neighbours (cache, rope, switch layers) do neither.
_MODEL_CLASS = re.compile(r"^(?:class Model\b|from \S+ import .*\bModel\b)", re.M)


def check_code(folder: ModelFolder) -> dict[str, Any]:
    """The folder's config, if nothing in it needs the folder's own code; ModelRefused or ModelUnsupported if it does.

    `model_file` is always refused. `auto_map` is ignored where mlx-lm or mlx-vlm knows the architecture,
    refused elsewhere.
    """
    config = read_config(folder.path)
    if config.get("model_file") is not None:
        raise ModelRefused(
            f"{folder.name} wants its own Python file run ({config['model_file']}), which mlxchat never does",
            "use a model whose architecture mlx-lm or mlx-vlm has",
        )
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise ModelUnsupported(f"{folder.name}'s config.json names no model_type", "give the folder of an MLX model")
    if is_supported(model_type):
        return config
    seen = is_vision_architecture(config)
    if seen and not has_vision(config):
        raise ModelUnsupported(
            f"{folder.name} is of an architecture for pictures ({model_type}), and its config.json has no vision part",
            "fetch the model again, or another conversion with its vision_config",
        )
    if not seen:
        if "auto_map" in config:
            raise ModelRefused(
                f"{folder.name} ({model_type}) would need the Python code in its folder, which mlxchat never runs",
                "use a model whose architecture mlx-lm or mlx-vlm has",
            )
        raise ModelUnsupported(f"mlx-lm has no architecture {model_type}", "a newer mlx-lm may have it")
    return config


def is_supported(model_type: str) -> bool:
    """Whether mlx-lm has the architecture. Looks at its files without importing it."""
    return module_path("mlx_lm", model_type) is not None


def is_vision_architecture(config: dict[str, Any]) -> bool:
    """Whether mlx-vlm has the config's architecture. Looks at its files without importing it."""
    model_type = str(config.get("model_type", "")).lower()
    return module_path("mlx_vlm", model_type) is not None


def module_path(package: str, model_type: str) -> Path | None:
    """The source of an architecture's module: a file, or the folder of a package. None if the library has none."""
    model_type = _remapped(package, model_type)
    if not re.fullmatch(r"[A-Za-z0-9_\-]+", model_type):
        return None
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        base = Path(location) / "models" / model_type
        file = base.with_name(base.name + ".py")
        if (base / "__init__.py").is_file():
            return base
        if file.is_file() and _MODEL_CLASS.search(file.read_text(encoding="utf-8")):
            return file
    return None


def _remapped(package: str, model_type: str) -> str:
    """The module that the library takes for a model_type, read from its source: importing it would start MLX."""
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        source = (Path(location) / "utils.py").read_text(encoding="utf-8")
        table = re.search(r"^MODEL_REMAPPING = \{(.*?)^\}", source, re.M | re.S)
        pairs: list[tuple[str, str]] = re.findall(r'"([^"]+)": "([^"]+)"', table.group(1)) if table else []
        return dict(pairs).get(model_type, model_type)
    return model_type


@contextlib.contextmanager
def view(folder: ModelFolder) -> Iterator[Path]:
    """A temporary folder that shows the model without any code or any key that names code."""
    with tempfile.TemporaryDirectory(prefix="mlxchat-model-") as name:
        shown = Path(name)
        for entry in folder.path.iterdir():
            if entry.is_dir() or entry.name.lower().endswith(_CODE_SUFFIXES):
                continue
            if entry.suffix == ".json" and (cleaned := _without_code(entry)) is not None:
                (shown / entry.name).write_text(cleaned, encoding="utf-8")
            else:
                (shown / entry.name).symlink_to(entry.resolve())
        yield shown


def _without_code(file: Path) -> str | None:
    """The JSON text without `auto_map`, or None if it has none (large tokenizers are then linked, not copied)."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if '"auto_map"' not in text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return json.dumps(_strip(value), ensure_ascii=False)


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip(inner) for key, inner in value.items() if key != "auto_map"}
    if isinstance(value, list):
        return [_strip(inner) for inner in value]
    return value


def check_memory(name: str, weight_bytes: int, kv_bytes: int) -> None:
    """ModelTooLarge unless weights and KV cache together fit into what the machine has for them."""
    limit, what = memory_limit()
    needed = weight_bytes + kv_bytes
    if needed > limit * HEADROOM:
        raise ModelTooLarge(
            f"{name} needs {size_text(needed)} (weights {size_text(weight_bytes)}, KV cache {size_text(kv_bytes)}), "
            f"{what} {size_text(limit)}",
            "use a smaller or more strongly quantized model",
        )


def memory_limit() -> tuple[int, str]:
    """Bytes a model may use, and the words for where that figure comes from. Imports MLX on macOS only."""
    if sys.platform == "darwin":
        import mlx.core as mx

        limit = mx.device_info().get("max_recommended_working_set_size")
        if limit:
            return int(limit), "and Metal allows"
    import psutil

    free = int(psutil.virtual_memory().available)
    return min(free, _cgroup_free() or free), "and this machine has free"


def _cgroup_free() -> int | None:
    """What a container's own limit leaves, or None without one."""
    base = Path("/sys/fs/cgroup")
    try:
        limit = (base / "memory.max").read_text(encoding="ascii").strip()
        used = int((base / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used)
