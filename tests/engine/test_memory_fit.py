"""What is told of a model before it is loaded: the context that fits, whether its cache can be rewound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine import guard, memory_fit, models, reuse_support
from mlxchat.engine.kv_shape import CacheShape
from mlxchat.engine.memory_fit import fitting_context, largest_context
from mlxchat.engine.recommended import for_memory
from mlxchat.engine.reuse_support import can_rewind
from support.model_folders import as_folder, edit_json, make_folder

pytestmark = pytest.mark.plain


def test_the_largest_context_that_fits() -> None:
    assert largest_context(CacheShape(100, 0), 0, 1000, 1_000_000) == 1000
    assert largest_context(CacheShape(100, 0), 0, 100_000, 1_000_000) == 9_500
    assert largest_context(CacheShape(100, 450_000), 0, 100_000, 1_000_000) == 5_000
    assert largest_context(CacheShape(100, 0), 950_000, 100_000, 1_000_000) == 0
    assert largest_context(CacheShape(0, 0), 10, 100_000, 1_000_000) == 100_000
    assert largest_context(CacheShape(None, 0), 10, 100_000, 1_000_000) == 100_000


def test_it_is_guessed_from_file_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = as_folder(make_folder(tmp_path / "tiny"))
    edit_json(folder.path / "config.json", max_position_embeddings=1 << 40)
    config = models.read_config(folder.path)
    size = 0
    for memory in (10_000_000, 20_000_000):
        monkeypatch.setattr(memory_fit, "usable_memory", lambda memory=memory: memory)
        fits = fitting_context(folder, config)
        assert fits > size
        size = fits
    monkeypatch.setattr(memory_fit, "usable_memory", lambda: 1000)
    assert fitting_context(folder, config) == 0


@pytest.mark.parametrize(
    "kind", ["llama", "gemma3_text", "qwen3_5", "gpt_oss", "lfm2", "mamba2", "falcon_h1", "llama4"]
)
def test_architectures_that_can_be_rewound(kind: str) -> None:
    assert guard.is_supported(kind)
    assert can_rewind({"model_type": kind}, "mlx_lm")


def test_a_class_that_is_not_known_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "odd.py"
    monkeypatch.setattr(guard, "module_path", lambda library, kind: module)

    def rewinds(body: str) -> bool:
        module.write_text(
            f"class Model:\n    def make_cache(self):\n        return [{body}]\n\n    def other(self):\n        X()\n"
        )
        config: dict[str, Any] = {"model_type": "odd"}
        return can_rewind(config, "mlx_lm")

    assert rewinds("KVCache(), RotatingKVCache(max_size=5, keep=0)")
    assert not rewinds("KVCache(), PoolingCache(3)")
    assert not rewinds("RotatingKVCache(max_size=5, keep=4)")


def test_every_class_that_counts_as_rewound_is_one_of_the_libraries() -> None:
    from mlx_lm.models import cache

    known = {name for name in vars(cache) if name.endswith("Cache")}
    assert {
        "KVCache",
        "RotatingKVCache",
        "ArraysCache",
        "ChunkedKVCache",
    } <= known & reuse_support._REWOUND


def test_more_memory_never_gets_a_smaller_recommendation() -> None:
    names = [for_memory(int(size * 1e9)) for size in (1, 4, 8, 16, 64)]
    assert names[0] is None
    assert len(set(names)) == 5
    assert all(models.is_repository(name) for name in names[1:] if name)
