"""Where things are kept, by environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.engine import folders

pytestmark = pytest.mark.exact


def test_one_home_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    for where in (folders.data_dir, folders.config_dir, folders.state_dir, folders.cache_dir, folders.models_dir):
        assert tmp_path in (where(), *where().parents)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "where"),
    [
        ("XDG_DATA_HOME", folders.data_dir),
        ("XDG_CONFIG_HOME", folders.config_dir),
        ("XDG_STATE_HOME", folders.state_dir),
        ("XDG_CACHE_HOME", folders.cache_dir),
    ],
)
def test_xdg(variable: str, where: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXCHAT_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert where() == tmp_path / "mlxchat"  # type: ignore[operator]


def test_the_hub_cache_follows_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.huggingface_dir() == tmp_path / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert folders.huggingface_dir() == tmp_path / "hf" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "direct"))
    assert folders.huggingface_dir() == tmp_path / "direct"
