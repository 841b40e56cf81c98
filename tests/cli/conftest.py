"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own home of the program, with a folder for saved chats. Modules that need another have one of this name."""
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    (tmp_path / "sessions").mkdir(mode=0o700)
    return tmp_path
