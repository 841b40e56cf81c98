"""Where settings are read from: the user's config.toml, a project's mlxchat.toml, the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..engine.folders import config_dir
from ..errors import DataError, UsageError
from .config_keys import ALIASES, KEYS, Key, read_value, unknown

PROJECT_NAMES = (".mlxchat.toml", "mlxchat.toml")
_LARGEST = 1 << 20  # bytes of a settings file
_PATH_STARTS = ("./", "../")
_NO_SETTINGS = ("MLXCHAT_HOME", "MLXCHAT_BLAS", "MLXCHAT_DEBUG")
_TEST_SWITCHES = "MLXCHAT_TEST_"


@dataclass
class Source:
    """The settings of one place. `notes` are lines for the user: what was not obeyed there, and why."""

    origin: str
    values: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    file: Path | None = None


def user_file() -> Path:
    """The user's own config.toml, there or not."""
    return config_dir() / "config.toml"


def project_file(start: Path) -> Path | None:
    """The project's file: in `start`, or above it up to the folder of the git repository; the nearest one.

    Outside a repository only `start` itself is looked at: a folder that many people write to, such as /tmp, must not
    speak for what lies below it.
    """
    folders = [start, *start.parents]
    top = next((at for at, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in folders[: top + 1]:
        for name in PROJECT_NAMES:
            if (folder / name).is_file():
                return folder / name
    return None


def read_user(path: Path) -> Source:
    """The user's file; an absent one is empty. Raises DataError or UsageError for one that can't be obeyed."""
    source = Source(shown(path), file=path)
    try:
        found = _parse(path)
    except (FileNotFoundError, NotADirectoryError):
        return source
    except OSError as error:
        raise DataError(f"can't read {shown(path)}: {error.strerror}", "check its permissions") from error
    except ValueError as error:
        raise DataError(f"{shown(path)} is not TOML: {error}", "mlxchat config edit opens it") from error
    for name, raw in found.items():
        if name == ALIASES:
            source.aliases = _aliases(raw, source.origin)
        elif name in KEYS:
            try:
                source.values[name] = _located(KEYS[name], read_value(KEYS[name], raw), path)
            except UsageError as error:
                raise UsageError(f"{source.origin}: {error.message}", error.hint) from error
        else:
            source.notes.append(f"{source.origin}: {unknown(name)}")
    return source


def read_project(path: Path) -> Source:
    """A project's file. It may come from anywhere, so whatever is wrong with it costs its settings and no more."""
    source = Source(shown(path), file=path)
    try:
        if path.stat().st_uid not in (os.getuid(), 0):
            source.notes.append(f"{source.origin} belongs to another user, and is not obeyed")
            return source
        found = _parse(path)
    except (OSError, ValueError) as error:
        source.notes.append(f"can't read {source.origin}, so it is not obeyed: {error}")
        return source
    refused = [name for name in found if name not in KEYS or not KEYS[name].project]
    for name in found:
        if name in refused:
            continue
        try:
            source.values[name] = _inside(KEYS[name], read_value(KEYS[name], found[name]), path)
        except UsageError as error:
            source.notes.append(f"{source.origin}: {error.message}; not obeyed")
    if refused:
        names = ", ".join(" ".join(name.split()) for name in refused)  # a name with a line break can't forge a line
        source.notes.append(f"{source.origin} names what no project may set, and is not obeyed: {names}")
    return source


def read_environment(environment: Mapping[str, str]) -> Source:
    """The MLXCHAT_* variables; empty ones count as unset. Raises UsageError for a value of the wrong kind."""
    source = Source("the environment")
    variables = {key.variable: key for key in KEYS.values() if key.variable}
    for name, text in environment.items():
        if not name.startswith("MLXCHAT_") or not text:
            continue
        if key := variables.get(name):
            try:
                source.values[key.name] = read_value(key, text, from_text=True)
            except UsageError as error:
                raise UsageError(f"{name}: {error.message}", f"unset {name}, or mend it") from error
        elif name not in _NO_SETTINGS and not name.startswith(_TEST_SWITCHES):
            words = unknown(name.removeprefix("MLXCHAT_").lower())
            if "did you mean" in words:  # other programs may have variables of this name
                source.notes.append(f"{name}: {words}")
    return source


def shown(path: Path) -> str:
    """A path for people: below the working folder or the home folder if it is."""
    for start, word in ((Path.cwd(), "."), (Path.home(), "~")):
        if path.is_relative_to(start):
            return f"{word}/{path.relative_to(start)}"
    return str(path)


def _parse(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("it is larger than a settings file can be")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _aliases(raw: Any, origin: str) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(name, str) and name for name in raw.values()):
        raise UsageError(
            f"{origin}: `{ALIASES}` takes a table of models", '[aliases], then qwen = "mlx-community/Qwen3-4B-4bit"'
        )
    return raw


def _located(key: Key, value: Any, file: Path) -> Any:
    """The value, a path in it seen from the folder of the file that names it."""
    if key.name == "system" and value.startswith("@") and not value.startswith("@@"):
        return f"@{file.parent / Path(value[1:]).expanduser()}"
    if key.name in ("tools", "mcp"):
        return [str(file.parent / Path(name).expanduser()) for name in value]
    if key.name in ("model", "template", "cache_dir") and value.startswith(_PATH_STARTS):
        return str(file.parent / value)
    return value


def _inside(key: Key, value: Any, file: Path) -> Any:
    """The same for a project's file, whose paths must stay inside its folder. Raises UsageError."""
    located = _located(key, value, file)
    if key.name not in ("model", "system", "template"):
        return located
    is_file = key.name == "system" and located.startswith("@") and not located.startswith("@@")
    path = located[1:] if is_file else located
    is_path = is_file or (key.name != "system" and (path.startswith("~") or Path(path).is_absolute()))
    if is_path and not Path(path).expanduser().resolve().is_relative_to(file.parent.resolve()):
        raise UsageError(f"`{key.name}` names a path outside the project's folder")
    return located
