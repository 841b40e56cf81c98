"""A short soak; benchmarks/soak.py runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cache.live import LiveCache
from mlxchat.cache.restore import Buffers
from support.kvstore import MIB
from support.scripted import model_folder
from support.soak import Soak, Toll

pytestmark = pytest.mark.exact


def soak(kind: str, tmp_path: Path, steps: int, seed: int = 3) -> Toll:
    one = Soak(model_folder(tmp_path / "model", kind, "qwen36"), tmp_path / "work", seed, 2 * MIB)
    try:
        for _ in range(steps):
            one.step()
    finally:
        one.close()
    assert one.engine.notices == []
    return one.toll


@pytest.mark.slow  # in make test, test_random_chats
@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_5"])
def test_no_token_is_wrong(kind: str, tmp_path: Path) -> None:
    toll = soak(kind, tmp_path, 12)
    assert toll.wrong == 0
    assert toll.answers >= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "gpt_oss", "qwen3_5"])
def test_no_token_is_wrong_however_long(kind: str, tmp_path: Path) -> None:
    toll = soak(kind, tmp_path, 300)
    assert toll.wrong == 0
    assert toll.report["store"]["evictions"] > 0
    assert toll.slope < 200_000, "bytes of resident memory per step"


@pytest.mark.slow
def test_planted_rows_restored_from_elsewhere_are_wrong_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every restored row is zero: the model answers something else."""
    monkeypatch.setattr(Buffers, "sink", lambda self, piece: lambda tensors: None)
    monkeypatch.setattr(LiveCache, "rows_reach", lambda self, group, position: False)
    assert soak("gemma3_text", tmp_path, 8).wrong > 0
