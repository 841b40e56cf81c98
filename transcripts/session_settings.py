"""What a saved session restores of how it was run: model, adapter, system prompt, template, sampling, thinking.

A session file may come from anywhere: whatever else its header names (tools, servers, an editor, cache paths, consent)
is never read, and its name is handed to the caller to be said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..engine.options import SamplingOptions, ThinkingOptions

_HEADER = ("type", "harness", "id", "name", "version", "timestamp", "forkedFrom", "parentId")
_RESTORED = ("model", "system", "template", "sampling", "thinking", "adapter")
_LEAST_AND_MOST: dict[str, tuple[type, float, float]] = {
    "temp": (float, 0, math.inf),
    "top_p": (float, 0, 1),
    "top_k": (int, 0, math.inf),
    "min_p": (float, 0, 1),
    "seed": (int, 0, math.inf),
    "max_tokens": (int, 1, math.inf),
}


@dataclass(frozen=True)
class SessionSettings:
    """How a session is run. `model` None and `template` None: the program's, and the model's own."""

    model: str | None = None
    system: str | None = None
    template: str | None = None
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    thinking: ThinkingOptions = field(default_factory=ThinkingOptions)
    adapter: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The header's fields; sampling only where it was chosen."""
        sampling = {one.name: getattr(self.sampling, one.name) for one in fields(self.sampling)}
        chosen = {name: value for name, value in sampling.items() if value not in (None, (), {})}
        return {
            "model": self.model,
            "system": self.system,
            "template": self.template,
            "sampling": {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()},
            "thinking": {"enabled": self.thinking.enabled, "budget": self.thinking.budget},
            **({} if self.adapter is None else {"adapter": self.adapter}),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SessionSettings:
        """The fields of a header or a settings line that are what they should be; the others keep their defaults."""
        return cls(
            model=_text(raw, "model"),
            system=_text(raw, "system"),
            template=_text(raw, "template"),
            sampling=_sampling(raw.get("sampling")),
            thinking=_thinking(raw.get("thinking")),
            adapter=_text(raw, "adapter"),
        )


def refused_fields(raw: Mapping[str, Any]) -> list[str]:
    """The names in a header that a session has no business setting, sorted."""
    return sorted(str(name) for name in raw if name not in _HEADER and name not in _RESTORED)


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    value = raw.get(name)
    return value if isinstance(value, str) else None


def _sampling(raw: Any) -> SamplingOptions:
    if not isinstance(raw, dict):
        return SamplingOptions()
    chosen: dict[str, Any] = {}
    for name, (kind, least, most) in _LEAST_AND_MOST.items():
        chosen[name] = _number(raw.get(name), kind, least, most)
    stop = raw.get("stop")
    if isinstance(stop, list):
        chosen["stop"] = tuple(text for text in stop if isinstance(text, str) and text)
    extra = raw.get("extra")
    if isinstance(extra, dict):
        chosen["extra"] = {name: value for name, value in extra.items() if _number(value, float) is not None}
    return SamplingOptions(**chosen)


def _thinking(raw: Any) -> ThinkingOptions:
    if not isinstance(raw, dict):
        return ThinkingOptions()
    enabled = raw.get("enabled")
    return ThinkingOptions(
        enabled=enabled if isinstance(enabled, bool) else None,
        budget=_number(raw.get("budget"), int, 0),
    )


def _number(value: Any, kind: type, least: float = -math.inf, most: float = math.inf) -> Any:
    """`value` if it is a finite number in this range, whole if `kind` is int; else None."""
    allowed = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        return None
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return None  # more than a seed holds; a far longer one is no float either
    return value if math.isfinite(value) and least <= value <= most else None
