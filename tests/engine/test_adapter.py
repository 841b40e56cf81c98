"""LoRA adapters: over the weights they were made for, whole, and with KV of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlxchat.engine.adapter import read_adapter
from mlxchat.engine.engine import Engine
from mlxchat.engine.loader import load
from mlxchat.engine.models import resolve
from mlxchat.engine.options import CacheOptions, EngineOptions
from mlxchat.errors import ModelError, ModelIncomplete, ModelNotFound, ModelUnsupported
from support.adapters import RANK, write_adapter
from support.scripted import model_folder

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny")


def logits(model: Any) -> mx.array:
    made: mx.array = model(mx.array([[1, 2, 3, 4]]))
    mx.eval(made)
    return made


def test_it_changes_what_the_model_says_and_always_the_same_way(folder: Path, tmp_path: Path) -> None:
    adapter = read_adapter(str(write_adapter(tmp_path / "lora")))
    assert (adapter.kind, adapter.rank, adapter.layers, adapter.base) == ("lora", RANK, 2, "org/base")
    plain, adapted = load(resolve(str(folder))), load(resolve(str(folder)), adapter=adapter)
    assert not mx.array_equal(logits(plain.model), logits(adapted.model))
    assert mx.array_equal(logits(adapted.model), logits(adapted.model)), "no dropout in use"
    assert adapted.dtype == "float32"
    assert adapted.adapter == adapter


@pytest.fixture
def namespaces(folder: Path, tmp_path: Path) -> Any:
    def of(adapter: Path | None) -> Any:
        options = EngineOptions(
            str(folder),
            cache=CacheOptions(directory=tmp_path / "kv"),
            adapter=None if adapter is None else str(adapter),
        )
        engine = Engine.start(options, lambda line: None)
        assert engine.info.adapter == (None if adapter is None else str(adapter))
        key = engine.call(lambda machinery: machinery.loop.reuse._namespace)
        engine.close()
        return key

    return of


def test_its_kv_is_its_own(namespaces: Any, tmp_path: Path) -> None:
    one, two = write_adapter(tmp_path / "one"), write_adapter(tmp_path / "two", layers=1)
    assert len({namespaces(None), namespaces(one), namespaces(two)}) == 3
    assert namespaces(one) == namespaces(one)


def test_what_does_not_fit_is_said(folder: Path, tmp_path: Path) -> None:
    wide = read_adapter(str(write_adapter(tmp_path / "wide", width=80)))
    with pytest.raises(ModelUnsupported, match="wide doesn't fit this model"):
        load(resolve(str(folder)), adapter=wide)
    short = write_adapter(tmp_path / "short", layers=2)
    config = json.loads((short / "adapter_config.json").read_text())
    (short / "adapter_config.json").write_text(json.dumps({**config, "num_layers": 3}))
    with pytest.raises(ModelIncomplete, match=r"short has no model\.layers\.0"):
        load(resolve(str(folder)), adapter=read_adapter(str(short)))


def test_folders_that_hold_none(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        read_adapter(str(tmp_path / "absent"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelIncomplete, match="has no adapters"):
        read_adapter(str(empty))
    (empty / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelIncomplete, match="PEFT"):
        read_adapter(str(empty))
    whole = write_adapter(tmp_path / "whole")
    for text in ("{", "[]", '{"fine_tune_type": "odd", "num_layers": 1}', '{"num_layers": 1}'):
        (whole / "adapter_config.json").write_text(text)
        with pytest.raises(ModelError):
            read_adapter(str(whole))
    (whole / "adapter_config.json").unlink()
    with pytest.raises(ModelIncomplete, match="has no adapter_config"):
        read_adapter(str(whole))
