"""`-o key=value`: the sampler and processor settings that have no flag of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..errors import UsageError

NUMBERS: dict[str, tuple[type, float, float]] = {
    "repetition_penalty": (float, 0, math.inf),
    "repetition_context_size": (int, 1, math.inf),
    "presence_penalty": (float, -math.inf, math.inf),
    "presence_context_size": (int, 1, math.inf),
    "frequency_penalty": (float, -math.inf, math.inf),
    "frequency_context_size": (int, 1, math.inf),
    "xtc_probability": (float, 0, 1),
    "xtc_threshold": (float, 0, 0.5),
    "min_tokens_to_keep": (int, 1, math.inf),
}
"""Name, type, least and greatest value: mlx-lm's sampler and processor arguments."""

FLAGS: dict[str, tuple[type, float, float]] = {
    "temp": (float, 0, math.inf),
    "top_p": (float, 0, 1),
    "top_k": (int, 0, math.inf),
    "min_p": (float, 0, 1),
    "max_tokens": (int, 1, math.inf),
    "seed": (int, 0, (1 << 64) - 1),
}
"""The same of those that have flags of their own."""

STOP = "stop"
NAMES = (STOP, *NUMBERS)


@dataclass(frozen=True)
class Settings:
    """What the -o options say: stop strings, and all else by mlx-lm's names."""

    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def read_settings(options: Sequence[str]) -> Settings:
    """`["k=v", …]` read. `stop` may be repeated; of any other the last counts. Raises UsageError."""
    stop: list[str] = []
    extra: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"-o takes key=value, not `{text}`", f"keys: {', '.join(NAMES)}")
        if name == STOP:
            if not value:
                raise UsageError("-o stop= needs a text to stop at", "for example -o stop=END")
            stop.append(value)
        elif name in NUMBERS:
            extra[name] = _number(name, value)
        else:
            raise _unknown(name)
    return Settings(tuple(stop), extra)


def _number(name: str, text: str) -> float:
    return parse_number(f"-o {name}", text, NUMBERS[name], f"-o {name}=VALUE")


def parse_number(what: str, text: str, bounds: tuple[type, float, float], hint: str) -> float:
    """`text` as a number within (type, least, greatest). Raises UsageError that says what `what` takes, and `hint`."""
    kind, least, most = bounds
    try:
        value: float = kind(text)
        finite = math.isfinite(value)
    except (ValueError, OverflowError):  # the latter: a whole number longer than a float can be
        value, finite = math.nan, False
    if not (finite and least <= value <= most):
        span = f" from {least:g} to {most:g}" if math.isfinite(most) else f", {least:g} or more" * math.isfinite(least)
        raise UsageError(f"{what} takes {'a whole number' if kind is int else 'a number'}{span}, not `{text}`", hint)
    return value


def _unknown(name: str) -> UsageError:
    if name in FLAGS:
        return UsageError(f"`{name}` has a flag of its own", f"use --{name.replace('_', '-')} VALUE")
    near = get_close_matches(name, NAMES, n=1)
    if near:
        return UsageError(f"-o has no setting `{name}`; did you mean `{near[0]}`?", f"keys: {', '.join(NAMES)}")
    return UsageError(f"-o has no setting `{name}`", f"keys: {', '.join(NAMES)}")
