"""What /set changes: the sampling settings by their names, read, checked and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from ..engine.options import SamplingOptions, ThinkingOptions
from ..errors import UsageError
from .sampling_settings import FLAGS, NUMBERS, STOP, parse_number

DEFAULT = "default"
NAMES = (*FLAGS, STOP, *NUMBERS)
Defaults = Mapping[str, tuple[float, bool]]
"""What holds of settings that nobody chose, and whether the model says so."""

_OFF: dict[str, tuple[float, ...]] = {
    "top_p": (0, 1),
    "top_k": (0,),
    "min_p": (0,),
    "xtc_probability": (0,),
    "repetition_penalty": (0, 1),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""The values with which a sampler or processor of mlx-lm changes nothing."""

_NO_MODEL_SAYS = {"max_tokens": "up to the end of the context", "seed": "another one each time", STOP: "none"}
_NAME_WIDTH = 12
_THINKING = {None: "as the template has it", True: "on", False: "off"}


def split_setting(text: str) -> tuple[str, str]:
    """`NAME VALUE` or `NAME=VALUE` as name and value, the latter "" where there is none. Raises UsageError."""
    name, _, value = text.replace("=", " ", 1).partition(" ") if "=" in text.split(" ")[0] else text.partition(" ")
    name = name.strip().lower().replace("-", "_")
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no setting {name}{meant}", f"settings: {', '.join(NAMES)}")
    return name, value.strip()


def changed(sampling: SamplingOptions, name: str, value: str) -> SamplingOptions:
    """`sampling` with one setting changed; `default` leaves it to the model. Raises UsageError for a bad value."""
    if name == STOP:
        return replace(sampling, stop=() if value == DEFAULT else (value,))
    hint = f"/set {name} VALUE, or /set {name} {DEFAULT}"
    if name in FLAGS:
        number = None if value == DEFAULT else parse_number(name, value, FLAGS[name], hint)
        fresh: dict[str, Any] = {name: number}
        return replace(sampling, **fresh)
    extra = {other: kept for other, kept in sampling.extra.items() if other != name}
    if value != DEFAULT:
        extra[name] = parse_number(name, value, NUMBERS[name], hint)
    return replace(sampling, extra=extra)


def shown(sampling: SamplingOptions, name: str, defaults: Defaults | None = None, width: int = _NAME_WIDTH) -> str:
    """One setting as a line: its name in `width` columns and its value, or what holds by `defaults`."""
    values: dict[str, Any] = {one.name: getattr(sampling, one.name) for one in fields(sampling)} | sampling.extra
    value = values.get(name)
    if name == STOP and sampling.stop:
        value = ", ".join(repr(text) for text in sampling.stop)
    return f"{name:<{width}}  {_unchosen(name, defaults or {}) if value in (None, ()) else _chosen(name, value)}"


def _chosen(name: str, value: Any) -> str:
    return f"off ({value:g})" if value in _OFF.get(name, ()) else str(value)


def _unchosen(name: str, defaults: Defaults) -> str:
    if name in _NO_MODEL_SAYS:
        return _NO_MODEL_SAYS[name]
    if name not in defaults:
        return "the model’s own"
    value, of_the_model = defaults[name]
    whose = "the model’s own" if of_the_model else "the default"
    return f"off ({value:g}, {whose})" if value in _OFF.get(name, ()) else f"{value:g} ({whose})"


def all_shown(sampling: SamplingOptions, thinking: ThinkingOptions, defaults: Defaults) -> list[str]:
    """Every setting that has a flag, was changed or is the model's, and how the model thinks."""
    others = (name for name in NUMBERS if name in sampling.extra or defaults.get(name, (0, False))[1])
    names = (*FLAGS, STOP, *others)
    width = max(_NAME_WIDTH, *map(len, names))
    lines = [shown(sampling, name, defaults, width) for name in names]
    return [*lines, f"{'thinking':<{width}}  {thinking_words(thinking)}"]


def thinking_words(thinking: ThinkingOptions) -> str:
    """For example `on, at most 200 tokens`."""
    budget = "" if thinking.budget is None else f", at most {thinking.budget:,} tokens"
    return _THINKING[thinking.enabled] + budget
