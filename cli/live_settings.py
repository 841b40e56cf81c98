"""What /set changes: the sampling settings by their names, read, checked and shown."""

from __future__ import annotations

from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from ..engine.options import SamplingOptions, ThinkingOptions
from ..errors import UsageError
from .sampling_settings import FLAGS, NUMBERS, STOP, parse_number

DEFAULT = "default"
NAMES = (*FLAGS, STOP, *NUMBERS)
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


def shown(sampling: SamplingOptions, name: str) -> str:
    """One setting as a line: its name and value."""
    values: dict[str, Any] = {one.name: getattr(sampling, one.name) for one in fields(sampling)} | sampling.extra
    value = values.get(name)
    if name == STOP and sampling.stop:
        value = ", ".join(repr(text) for text in sampling.stop)
    return f"{name:<12}  {'the model’s own' if value in (None, ()) else value}"


def all_shown(sampling: SamplingOptions, thinking: ThinkingOptions) -> list[str]:
    """Every setting that has a flag or was changed, and how the model thinks."""
    names = [*FLAGS, STOP, *(name for name in NUMBERS if name in sampling.extra)]
    return [*(shown(sampling, name) for name in names), f"{'thinking':<12}  {thinking_words(thinking)}"]


def thinking_words(thinking: ThinkingOptions) -> str:
    """For example `on, at most 200 tokens`."""
    budget = "" if thinking.budget is None else f", at most {thinking.budget:,} tokens"
    return _THINKING[thinking.enabled] + budget
