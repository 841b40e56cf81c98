"""Small model folders for tests of finding and loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine import gguf_import
from mlxchat.engine.models import ModelFolder
from support.gguf_files import write_gemma3, write_llama


def make_folder(path: Path, kind: str = "llama", seed: int = 0) -> Path:
    """A whole MLX folder of a tiny random model."""
    path.mkdir(parents=True)
    write = {"llama": write_llama, "gemma3": write_gemma3}[kind]
    source = write(path / "source.gguf", seed=seed)
    gguf_import.convert(source.path, path, template="{{ 'x' }}", sampling={})
    source.path.unlink()
    return path


def as_folder(path: Path) -> ModelFolder:
    return ModelFolder(path.name, path, "folder")


def edit_json(file: Path, **changes: Any) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    value.update(changes)
    file.write_text(json.dumps(value), encoding="utf-8")


def isolate(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Point every place a model could be found at an empty home."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MLXCHAT_HOME", str(home / "mlxchat"))


def huggingface_snapshot(home: Path, repository: str, source: Path, *, ref: bool = True, sha: str = "abc123") -> Path:
    """Lay `source` out as the hub's library would: blobs, links in a snapshot, refs/main."""
    entry = home / ".cache" / "huggingface" / "hub" / ("models--" + repository.replace("/", "--"))
    snapshot = entry / "snapshots" / sha
    snapshot.mkdir(parents=True)
    (entry / "blobs").mkdir(exist_ok=True)
    for file in source.iterdir():
        blob = entry / "blobs" / f"{sha}-{file.name}"
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    if ref:
        (entry / "refs").mkdir(exist_ok=True)
        (entry / "refs" / "main").write_text(sha)
    return snapshot
