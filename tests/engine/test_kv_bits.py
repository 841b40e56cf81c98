"""--kv-bits in an engine: reuse as before, records of its own, and one line where a model can't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cache import quantized
from mlxchat.engine.options import KVQuantization
from mlxchat.errors import UsageError
from support.scripted import ScriptedEngine, ask, model_folder

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("bits") / "model", head_dim=64, num_hidden_layers=2)


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Any]:
    made: list[ScriptedEngine] = []

    def begin(quantization: KVQuantization | None, folder: Path = model) -> ScriptedEngine:
        made.append(ScriptedEngine(folder, tmp_path / "work", "One.", "Two.", quantization=quantization, drop_live="1"))
        return made[-1]

    yield begin
    for engine in made:
        engine.check()
        engine.close()


def stored_bytes(engine: ScriptedEngine) -> int:
    """After two turns, each restored from disk."""
    chat = engine.chat(SYSTEM)
    turns = [ask(chat, "a"), ask(chat, "b")]
    assert [turn.message.text for turn in turns] == ["One.", "Two."]
    assert turns[1].stats.cached_disk_tokens == turns[1].stats.cached_tokens > 500
    assert engine.notices == []
    return turns[0].stats.checkpoint_bytes


def test_records_shrink_with_the_bits(start: Any) -> None:
    plain, eight, four = (stored_bytes(start(q)) for q in (None, KVQuantization(8), KVQuantization(4)))
    row = 64 * 4  # a row of one head is float32; packed, 64 values share a scale and a bias
    assert eight == plain * (64 + 8) // row
    assert four == plain * (32 + 8) // row


def test_the_first_token_is_quantized_already(start: Any) -> None:
    engine = start(KVQuantization(4, 32))
    kinds = engine.engine.call(lambda m: [type(c).__name__ for c in m.loop.reuse.fresh().leaves])
    assert set(kinds) == {"QuantizedKVCache"}


def test_each_choice_has_records_of_its_own(start: Any) -> None:
    choices = (None, KVQuantization(8), KVQuantization(4), KVQuantization(8, 32))
    names = {start(choice).engine.call(lambda m: m.store.namespace) for choice in choices}
    assert len(names) == len(choices)


def test_a_model_that_can_not_says_so_at_the_start(start: Any, tmp_path: Path) -> None:
    sinks = model_folder(tmp_path / "sinks", "gpt_oss", head_dim=32)
    with pytest.raises(UsageError, match="can't run with --kv-bits 8 and groups of 32: Quantized SDPA does not"):
        start(KVQuantization(8, 32), sinks)


def test_a_model_without_such_layers_is_told_once(start: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(quantized, "_quantized", lambda cache, bits, group_size: cache)
    engine = start(KVQuantization(8))
    assert ask(engine.chat(SYSTEM), "a").message.text == "One."
    assert len(engine.notices) == 1
    assert "--kv-bits changes nothing" in engine.notices[0]
