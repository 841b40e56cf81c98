"""Whether a model sees pictures, told from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelUnsupported

_TOWERS = ("mm_vision_tower", "img_processor")
"""What older families name their vision part by, in place of `vision_config`."""


def has_vision(config: Mapping[str, Any]) -> bool:
    """Whether the model of this config.json has its vision part.

    Conversions that leave the vision weights out take `vision_config` away, empty it, set it to null, or mark it
    `skip_vision`: those are text models.
    """
    vision = config.get("vision_config")
    if isinstance(vision, Mapping):
        return bool(vision) and not vision.get("skip_vision")
    return any(config.get(name) for name in _TOWERS)


def sees_no_pictures(name: str, hint: str = "leave them out, or choose a model with vision (-m)") -> ModelUnsupported:
    """The error for a picture that a text-only model is asked about. `hint`: what to do where no flag can be given."""
    return ModelUnsupported(f"{name} is a text model and can't see pictures", hint)
