"""Models are removed by whoever fetched them, and of shared folders only what nobody else links to."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.engine import removal
from mlxchat.errors import ModelNotFound, UsageError
from support.model_folders import huggingface_snapshot, isolate, make_folder

pytestmark = pytest.mark.plain


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return tmp_path


def test_what_others_fetched_stays(home: Path) -> None:
    source = make_folder(home / "tiny")
    huggingface_snapshot(home, "org/theirs", source)
    make_folder(home / ".lmstudio" / "models" / "pub" / "studio")
    for name, hint in (("org/theirs", "hf cache rm"), ("pub/studio", "lms"), (str(source), "folder")):
        with pytest.raises(UsageError, match="was not fetched by mlxchat") as raised:
            removal.plan(name)
        assert hint in raised.value.hint
    with pytest.raises(ModelNotFound):
        removal.plan("org/nothing")


def test_a_repository_that_was_pulled_goes_whole(home: Path) -> None:
    snapshot = huggingface_snapshot(home, "org/ours", make_folder(home / "tiny"))
    removal.note_pulled("org/ours", snapshot)
    planned = removal.plan("org/ours")
    assert planned.disk_bytes > (snapshot / "model.safetensors").stat().st_size
    removal.carry_out(planned)
    assert not snapshot.parent.parent.exists()
    with pytest.raises(ModelNotFound):
        removal.plan("org/ours")
    huggingface_snapshot(home, "org/ours", home / "tiny")
    with pytest.raises(UsageError):
        removal.plan("org/ours")  # fetched anew, by somebody else


def test_another_revision_keeps_its_files(home: Path) -> None:
    source = make_folder(home / "tiny")
    ours = huggingface_snapshot(home, "org/shared", source, sha="ours")
    blobs = ours.parent.parent / "blobs"
    theirs = ours.parent / "theirs"
    theirs.mkdir()
    (theirs / "config.json").symlink_to(Path("..", "..", "blobs", "ours-config.json"))
    removal.note_pulled("org/shared", ours)
    removal.carry_out(removal.plan("org/shared"))
    assert not ours.exists()
    assert (theirs / "config.json").read_text()
    assert [blob.name for blob in blobs.iterdir()] == ["ours-config.json"]


def test_a_broken_model_can_be_removed(home: Path) -> None:
    snapshot = huggingface_snapshot(home, "org/broken", make_folder(home / "tiny"))
    removal.note_pulled("org/broken", snapshot)
    (snapshot / "model.safetensors").unlink()
    removal.carry_out(removal.plan("org/broken"))
    assert not snapshot.exists()
