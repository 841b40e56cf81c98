"""Take a model off this machine: those that mlxchat fetched, and of them only what nobody else keeps."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError, UsageError
from . import models
from .folders import models_dir
from .models import ModelFolder

_PULLED = "pulled.json"


@dataclass(frozen=True)
class Removal:
    """What would go: `paths`, taking `disk_bytes`."""

    folder: ModelFolder
    paths: tuple[Path, ...]
    disk_bytes: int


def note_pulled(name: str, snapshot: Path) -> None:
    """Remember that mlxchat fetched this snapshot of a repository, so that it may remove it again."""
    known = _pulled()
    known[name] = snapshot.name
    try:
        models_dir().mkdir(parents=True, exist_ok=True)
        (models_dir() / _PULLED).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    except OSError:
        pass  # then it stays the hub's, and is removed with its own tool


def plan(name: str) -> Removal:
    """What removing the model `name` would take away.

    Raises what `resolve` does, and UsageError for a model that others brought here: it is theirs to remove.
    """
    folder = _found(models.meaning(name))
    if folder.origin == "mlxchat":
        paths: tuple[Path, ...] = (folder.path,)
    elif folder.origin == "huggingface":
        if _pulled().get(folder.name) != folder.path.name:
            raise _not_ours(folder.name, "other programs fetched it", f"hf cache rm model/{folder.name}")
        paths = _snapshot_paths(folder.path)
    elif folder.origin == "lmstudio":
        raise _not_ours(folder.name, "it is LM Studio's", "remove it there: lms ls shows its models")
    else:
        raise _not_ours(str(folder.path), "it is a folder of yours", "remove it as any other folder")
    return Removal(folder, paths, sum(_size(path) for path in paths))


def carry_out(removal: Removal) -> None:
    """Remove it. Raises ModelError if the system refuses."""
    try:
        for path in removal.paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        known = _pulled()
        if known.pop(removal.folder.name, None) is not None:
            (models_dir() / _PULLED).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{removal.folder.name} can't be removed: {error}", "see the folder's permissions") from error


def _found(name: str) -> ModelFolder:
    """The model's folder, a broken one too: that is when it is removed."""
    for folder in models.on_disk():
        if folder.name == name:
            return folder
    return models.resolve(name)


def _snapshot_paths(snapshot: Path) -> tuple[Path, ...]:
    """The repository's folder; of one that has other revisions only this one, and the blobs that no other links to."""
    entry = snapshot.parent.parent
    others = [path for path in snapshot.parent.iterdir() if path != snapshot]
    if not others:
        return (entry,)
    kept = {file.resolve() for other in others for file in other.rglob("*") if file.is_symlink()}
    blobs = {file.resolve() for file in snapshot.rglob("*") if file.is_symlink()} - kept
    refs = [ref for ref in (entry / "refs").rglob("*") if ref.is_file() and ref.read_text().strip() == snapshot.name]
    return (snapshot, *sorted(blob for blob in blobs if blob.is_relative_to(entry.resolve())), *refs)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [Path(at, name) for at, _, names in os.walk(path) for name in names]
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def _pulled() -> dict[str, str]:
    """Repository → the revision that mlxchat fetched."""
    try:
        found = json.loads((models_dir() / _PULLED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _not_ours(name: str, why: str, hint: str) -> UsageError:
    return UsageError(f"{name} was not fetched by mlxchat, and stays: {why}", hint)
