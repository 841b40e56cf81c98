"""Find a model by the name a user gave: an alias, a folder, a repository on disk, or a unique part of one of those.

Nothing here imports MLX, opens a socket or reads weights.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import ModelIncomplete, ModelNotFound
from .aliases import EMBEDDED, size_text
from .folders import huggingface_dir, lmstudio_dirs, models_dir
from .user_aliases import meaning as meaning

Confirm = Callable[[str], bool]
Progress = Callable[[str, int, int], None]
Origin = Literal["mlxchat", "huggingface", "lmstudio", "folder"]

MADE_BY = "mlxchat.json"
MADE_FORMAT = 1


@dataclass(frozen=True)
class ModelFolder:
    """A folder that holds a model, and the name to call it by."""

    name: str
    path: Path
    origin: Origin


def resolve(name: str, offline: bool = False) -> ModelFolder:
    """The folder that `name` means. Looks only at this machine's disk.

    An alias comes first, the user's own before ours, then a path, a repository, a unique part of a name. Raises
    ModelNotFound (its hint says how to fetch it, or, with `offline`, that fetching is switched off) or ModelIncomplete.
    """
    name = meaning(name)
    if name in EMBEDDED:
        folder = embedded_folder(name)
        if folder is None:
            raise not_here(name, offline)
        return folder
    if _is_path(name):
        path = Path(name).expanduser()
        if not path.is_dir():
            raise ModelNotFound(f"{name} is not a folder", "give a model's folder, alias or repository")
        return checked(ModelFolder(path.resolve().name, path.resolve(), "folder"))
    known = on_disk()
    for folder in known:
        if folder.name == name:
            return checked(folder)
    return checked(_by_part(name, known, offline))


def ensure(
    name: str,
    *,
    offline: bool = False,
    yes: bool = False,
    confirm: Confirm | None = None,
    progress: Progress | None = None,
) -> ModelFolder:
    """The folder of `name`, fetched first if it isn't here and the user agrees.

    yes       consent was given on the command line; else `confirm` is asked one question with the size and the terms,
              and None means that nobody can be asked: the download is refused
    progress  gets (what is being done, bytes done, bytes in all or 0)
    Raises what `resolve` does, and DownloadError.
    """
    name = meaning(name)
    try:
        return resolve(name, offline)
    except (ModelNotFound, ModelIncomplete):
        if offline or not (name in EMBEDDED or is_repository(name)) or _is_path(name):
            raise
    from .download import pull

    pull(name, offline=offline, confirm=(lambda question: True) if yes else confirm, progress=progress)
    return resolve(name, offline)


def _by_part(name: str, known: list[ModelFolder], offline: bool) -> ModelFolder:
    part = name.lower()
    found = [f for f in known if part in (f.name.lower(), f.name.lower().rpartition("/")[2])]
    if not found and "/" not in name:  # a whole repository's name never means a longer one
        found = [f for f in known if part in f.name.lower()]
    names = sorted({f.name for f in found})
    if len(names) > 1:
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        raise ModelNotFound(f"{name} could be any of {shown}", "give more of the name")
    if not found:
        raise not_here(name, offline)
    return found[0]


def not_here(name: str, offline: bool) -> ModelNotFound:
    """The error for a model that isn't on this machine, with the way to get it."""
    if offline:
        return ModelNotFound(f"{name} is not on this machine, and --offline forbids fetching it", "drop --offline")
    if name in EMBEDDED:
        size = size_text(EMBEDDED[name].download_bytes)
        return ModelNotFound(f"{name} is not on this machine yet ({size})", f"mlxchat models pull {name}")
    if is_repository(name):
        return ModelNotFound(f"{name} is not on this machine", f"mlxchat models pull {name}")
    return ModelNotFound(f"no model is called {name}", "mlxchat models list shows what is here")


def is_repository(name: str) -> bool:
    """Whether `name` has the form of a Hugging Face repository, owner/model."""
    return re.fullmatch(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*", name, re.ASCII) is not None


def _is_path(name: str) -> bool:
    if name.startswith(("/", "./", "../", "~")) or name in (".", ".."):
        return True
    return (Path(name) / "config.json").is_file()


def embedded_folder(alias: str) -> ModelFolder | None:
    """The converted folder of an alias, or None if it was never pulled (or was made by an older converter)."""
    path = models_dir() / alias
    try:
        made = json.loads((path / MADE_BY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if made.get("format") != MADE_FORMAT or made.get("gguf_sha256") != EMBEDDED[alias].gguf_sha256:
        return None
    return ModelFolder(alias, path, "mlxchat")


def on_disk() -> list[ModelFolder]:
    """Every model folder in the known places: ours, the Hugging Face cache, LM Studio's; the first of a name wins."""
    found: dict[str, ModelFolder] = {}
    for alias in EMBEDDED:
        folder = embedded_folder(alias)
        if folder is not None:
            found[alias] = folder
    for folder in [*_huggingface(), *_lmstudio()]:
        found.setdefault(folder.name, folder)
    return list(found.values())


def _huggingface() -> list[ModelFolder]:
    folders = []
    for entry in sorted(huggingface_dir().glob("models--*--*")):
        snapshot = _snapshot(entry)
        if snapshot is not None:
            name = entry.name.removeprefix("models--").replace("--", "/", 1)
            folders.append(ModelFolder(name, snapshot, "huggingface"))
    return folders


def _snapshot(entry: Path) -> Path | None:
    """The snapshot that refs/main names, else the newest one that has a config."""
    try:
        main = entry / "snapshots" / (entry / "refs" / "main").read_text(encoding="utf-8").strip()
        if (main / "config.json").exists():
            return main
    except OSError:
        pass
    snapshots = [s for s in (entry / "snapshots").glob("*") if (s / "config.json").exists()]
    return max(snapshots, key=lambda s: s.stat().st_mtime, default=None)


def _lmstudio() -> list[ModelFolder]:
    folders = []
    for root in lmstudio_dirs():
        for config in sorted(root.glob("*/*/config.json")):
            path = config.parent
            folders.append(ModelFolder(f"{path.parent.name}/{path.name}", path, "lmstudio"))
    return folders


def checked(folder: ModelFolder) -> ModelFolder:
    """The same folder, or ModelIncomplete if a file that every model needs isn't there."""
    read_config(folder.path)
    files = weight_files(folder.path)
    absent = [f.name for f in files if not f.is_file()]
    if absent or not files:
        what = f"the weights {absent[0]}" if absent else "weights (model*.safetensors)"
        raise ModelIncomplete(f"{folder.name} has no {what}", _refetch(folder))
    if not any((folder.path / f).is_file() for f in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
        raise ModelIncomplete(f"{folder.name} has no tokenizer.json", _refetch(folder))
    return folder


def _refetch(folder: ModelFolder) -> str:
    if folder.origin in ("mlxchat", "huggingface"):
        return f"mlxchat models pull {folder.name}"
    return "fetch the folder again, whole"


def read_config(path: Path) -> dict[str, Any]:
    """config.json as an object; ModelIncomplete if it is absent or broken."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelIncomplete(f"{path.name} has no config.json", "give the folder of an MLX model") from None
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{file} can't be read as JSON: {error}", "fetch the model again") from error
    if not isinstance(config, dict):
        raise ModelIncomplete(f"{file} is not a JSON object", "fetch the model again")
    return config


def weight_files(path: Path) -> list[Path]:
    """The weight files in name order: those the index names (there or not), else model*.safetensors."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelIncomplete(f"{index} is broken: {error}", "fetch the model again") from error
        return [path / name for name in sorted(names) if os.sep not in str(name)]
    return _with_missing_shards(sorted(path.glob("model*.safetensors")))


def _with_missing_shards(files: list[Path]) -> list[Path]:
    """The files, and those that a name like model-00001-of-00003 says must be there too."""
    wanted = set(files)
    for file in files:
        if match := re.fullmatch(r"(model.*)-(\d+)-of-(\d+)\.safetensors", file.name):
            stem, digits, count = match.groups()
            names = (f"{stem}-{i:0{len(digits)}d}-of-{count}.safetensors" for i in range(1, min(int(count), 9999) + 1))
            wanted.update(file.with_name(name) for name in names)
    return sorted(wanted)
