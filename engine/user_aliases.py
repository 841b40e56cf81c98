"""The user's own names for models: the table `aliases` of config.toml."""

from __future__ import annotations

import tomllib

from .folders import config_dir


def user_aliases() -> dict[str, str]:
    """Name → model. Empty where the file is absent or broken: the command line says so where it reads the rest."""
    try:
        found = tomllib.loads((config_dir() / "config.toml").read_text(encoding="utf-8")).get("aliases")
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: model for name, model in found.items() if isinstance(model, str) and model}


def meaning(name: str) -> str:
    """The model that the user calls `name`; any other name as it is. An alias of an alias stays that one's name."""
    return user_aliases().get(name, name)
