"""A LoRA adapter of mlx-lm's trainer: what its folder says, who it is, and how it goes over a model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelIncomplete, ModelNotFound, ModelUnsupported
from .weights import WeightFile, fingerprint, read_header

_CONFIG, _WEIGHTS, _OF_PEFT = "adapter_config.json", "adapters.safetensors", "adapter_model.safetensors"
_KINDS = ("lora", "dora", "full")
_LEAVES = ("lora_a", "lora_b", "m")
_AS_TRAINED = "give the folder that mlx_lm.lora --adapter-path made"


@dataclass(frozen=True)
class Adapter:
    """A whole adapter on disk.

    kind         lora, dora, or full (all weights of some layers)
    rank         of the two small matrices, None for full
    layers       how many of the model's last layers it changes
    base         the model that it was trained on, as its trainer was told, "" if it doesn't say
    fingerprint  hex sha256 of its config and of its weights' header, size and time
    """

    path: str
    kind: str
    rank: int | None
    layers: int
    base: str
    disk_bytes: int
    fingerprint: str

    @property
    def name(self) -> str:
        """What it is called."""
        return Path(self.path).name

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {"name": self.name, **asdict(self)}


def read_adapter(name: str) -> Adapter:
    """The adapter in folder `name`. Raises ModelNotFound, or ModelIncomplete for one that can't be used."""
    path = Path(name).expanduser()
    if not path.is_dir():
        raise ModelNotFound(f"--adapter {name} is not a folder", _AS_TRAINED)
    path = path.resolve()
    if not (path / _WEIGHTS).is_file():
        if (path / _OF_PEFT).is_file():
            raise ModelIncomplete(f"{path.name} is an adapter of PEFT, not of mlx-lm", "convert it to mlx-lm's layout")
        raise ModelIncomplete(f"{path.name} has no {_WEIGHTS}", _AS_TRAINED)
    config = _config(path)
    kind = config.get("fine_tune_type", "lora")
    parameters = config.get("lora_parameters")
    rank = parameters.get("rank") if isinstance(parameters, dict) else None
    layers = config.get("num_layers")
    if kind not in _KINDS or not isinstance(layers, int) or (kind != "full" and not isinstance(rank, int)):
        raise ModelIncomplete(f"{path.name}'s {_CONFIG} is not one of mlx-lm's trainer", _AS_TRAINED)
    weights = read_header(path / _WEIGHTS)
    return Adapter(
        path=str(path),
        kind=kind,
        rank=None if kind == "full" else rank,
        layers=layers,
        base=config["model"] if isinstance(config.get("model"), str) else "",
        disk_bytes=weights.size,
        fingerprint=fingerprint(path / _CONFIG, [weights]),
    )


def apply_adapter(model: Any, adapter: Adapter) -> None:
    """Put the adapter's layers over a lazily loaded module of mlx-lm.

    Raises ModelUnsupported for one that was made for another model, ModelIncomplete for one that lacks a part: mlx-lm
    would leave its random start there.
    """
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import load_adapters

    try:
        load_adapters(model, adapter.path)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause = " ".join(str(error).split())[:160]
        raise ModelUnsupported(
            f"{adapter.name} doesn't fit this model: {cause}",
            f"it was trained on {adapter.base}" if adapter.base else "use the model that it was trained on",
        ) from error
    model.eval()  # new layers begin in training mode, where dropout is on
    if adapter.kind == "full":
        return
    wanted = {name for name, _ in tree_flatten(model.parameters()) if name.rpartition(".")[2] in _LEAVES}
    absent = sorted(wanted - _tensors(adapter))
    if absent:
        raise ModelIncomplete(f"{adapter.name} has no {absent[0]}", "train or copy it again")


def _tensors(adapter: Adapter) -> set[str]:
    weights: WeightFile = read_header(Path(adapter.path) / _WEIGHTS)
    return set(weights.tensors)


def _config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelIncomplete(f"{path.name} has no {_CONFIG}", _AS_TRAINED) from None
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{path / _CONFIG} can't be read as JSON: {error}", _AS_TRAINED) from error
    if not isinstance(value, dict):
        raise ModelIncomplete(f"{path / _CONFIG} is not a JSON object", _AS_TRAINED)
    return value
