"""Where mlxchat keeps things. MLXCHAT_HOME puts all of it under one folder; otherwise the platform's own places.

Nothing here makes a folder: whoever writes into one makes it, with the mode it needs.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "mlxchat"
_PLACES = "places"


def _home() -> Path | None:
    value = os.environ.get("MLXCHAT_HOME")
    return Path(value).expanduser() if value else None


def data_dir() -> Path:
    """Models and sessions: XDG_DATA_HOME or the platform's data folder."""
    return _home() or Path(platformdirs.user_data_dir(_APP, appauthor=False))


def config_dir() -> Path:
    """config.toml and templates: XDG_CONFIG_HOME or the platform's config folder."""
    return _home() or Path(platformdirs.user_config_dir(_APP, appauthor=False))


def state_dir() -> Path:
    """Prompt history: XDG_STATE_HOME or the platform's state folder."""
    return _home() or Path(platformdirs.user_state_dir(_APP, appauthor=False))


def cache_dir() -> Path:
    """The KV scratch file: XDG_CACHE_HOME or the platform's cache folder."""
    home = _home()
    return home / "cache" if home else Path(platformdirs.user_cache_dir(_APP, appauthor=False))


def kept_cache_dir() -> Path:
    """KV caches that --cache-persist keeps: beside the saved chats."""
    return data_dir() / "kv"


def note_kept_dir(directory: Path) -> None:
    """Remember a folder of kept caches elsewhere, so that what is deleted of a chat is deleted there too."""
    places = kept_cache_dir() / _PLACES
    known = kept_dirs()
    if directory.absolute() in known:
        return
    try:
        places.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(places, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(f"{directory.absolute()}\n")
    except OSError:
        pass  # the chat goes on; the folder is found again as long as the same --cache-dir is given


def kept_dirs() -> list[Path]:
    """Every folder that kept caches were put into: the usual one, and those named with --cache-dir."""
    try:
        lines = (kept_cache_dir() / _PLACES).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    return list(dict.fromkeys([kept_cache_dir().absolute(), *(Path(line) for line in lines if line.strip())]))


def models_dir() -> Path:
    """Folders of the embedded models, one each, made by `mlxchat models pull`."""
    return data_dir() / "models"


def huggingface_dir() -> Path:
    """The Hugging Face cache as its own library would find it: HF_HUB_CACHE, then HF_HOME, then the default."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(name):
            return Path(os.path.expandvars(value)).expanduser()
    if value := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(value)).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def lmstudio_dirs() -> list[Path]:
    """The folders LM Studio keeps publisher/model folders in, newest layout first; those that exist."""
    places = [Path("~/.lmstudio/models"), Path("~/.cache/lm-studio/models")]
    try:  # a home that was moved is named here
        moved = Path("~/.lmstudio-home-pointer").expanduser().read_text(encoding="utf-8").strip()
        places.insert(0, Path(moved) / "models")
    except (OSError, ValueError, RuntimeError):
        pass
    return [place for place in dict.fromkeys(p.expanduser() for p in places) if place.is_dir()]
