"""Several conversations on one engine: one KV in memory, the others on disk, nothing in common but prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache import lookup
from mlxchat.cache.room import Room
from mlxchat.engine.conversations import Conversations
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, RequestOptions
from mlxchat.engine.parking import Parking
from mlxchat.engine.runner import ModelRunner
from support.oracle import contains, costs, read_log
from support.scripted import ScriptedEngine, ask, done, live_bytes, model_folder, next_number, options

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 50
CANARY = " canary sings at seven"
THOUGHT = "The user asks.\n</think>\n\nParis."
MARGIN = 100_000  # bytes of ids and masks
KINDS = ("qwen3", "gemma3_text", "qwen3_5")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: model_folder(tmp_path_factory.mktemp(kind) / "model", kind, "qwen36") for kind in KINDS}


@pytest.fixture
def engine(request: pytest.FixtureRequest, models: dict[str, Path], tmp_path: Path) -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(models[getattr(request, "param", "qwen3")], tmp_path / "work", THOUGHT)
    yield made
    made.check()
    made.close()
    assert made.notices == []


all_kinds = pytest.mark.parametrize("engine", KINDS, indirect=True)


@all_kinds
def test_a_second_conversation_frees_the_first_and_the_first_comes_back_from_disk(engine: ScriptedEngine) -> None:
    one, two = engine.chat(SYSTEM), engine.chat("Something else. " + SYSTEM)
    first = ask(one, "What is the capital of France?")
    held = engine.engine.call(live_bytes)
    second = ask(two, "And of Spain?")
    now = engine.engine.call(live_bytes)
    assert isinstance(held, dict)
    assert isinstance(now, dict)
    assert held[1] > 0
    assert (now[1], now[2] > 0) == (0, True)
    third = ask(one, "Sure?")
    assert third.stats.restore_kind in ("anchor", "block")
    assert third.stats.cached_disk_tokens == third.stats.cached_tokens > 500
    tokens = [turn.stats.prompt_tokens for turn in (first, second, third)]
    assert costs(read_log(engine.log), tokens)[2].extra <= 4
    after = engine.engine.call(live_bytes)
    assert isinstance(after, dict)
    assert after[2] == 0


@pytest.mark.slow
@all_kinds
def test_of_four_long_conversations_only_one_is_in_memory(engine: ScriptedEngine) -> None:
    """4,000 tokens each; what MLX holds beside the weights is the active one's KV."""
    mx.clear_cache()
    base = mx.get_active_memory()
    for number in range(4):
        turn = ask(engine.chat(f"{number} " + SYSTEM * 8), "What is the capital of France?")
        assert turn.stats.prompt_tokens > 4000
        engine.check()
        held = engine.engine.call(live_bytes)
        assert isinstance(held, dict)
        assert [nbytes > 0 for nbytes in held.values()] == [False] * number + [True]
        own = held[number + 1]
        assert sum(held.values()) <= 1.02 * own
        mx.clear_cache()
        assert mx.get_active_memory() - base <= 1.02 * own + MARGIN


@pytest.mark.slow
def test_planted_a_conversation_that_stays_is_noticed(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversations, "leave_all_but", lambda self, current: None)
    with pytest.raises(AssertionError):
        test_of_four_long_conversations_only_one_is_in_memory(engine)


@all_kinds
def test_a_stopped_prefill_survives_another_conversation(engine: ScriptedEngine) -> None:
    """Stopped between two calls, off a block's edge: all it fed is a checkpoint, also once it has left memory."""
    one, message = engine.chat(SYSTEM), user("What is the capital? " + SYSTEM)
    engine.gate.hold(f"{next_number()}.prefill.3")
    events = one.ask(message, RequestOptions())
    next(events)
    engine.gate.wait_held()
    one.stop()
    assert done(list(events)).finish_reason == "interrupted"
    engine.gate.release()
    fed = len(read_log(engine.log)[-1].ids)
    assert fed % 256 > 40, "this test needs rows past the last block edge"
    ask(engine.chat("Other."), "Hello.")
    again = done(list(one.ask(message, RequestOptions())))
    assert again.stats.cached_disk_tokens == again.stats.cached_tokens == fed
    assert costs(read_log(engine.log), [0, 0, again.stats.prompt_tokens])[0].extra <= 4


def test_planted_a_stopped_prefill_whose_end_is_thrown_away_is_seen(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parking, "park", lambda self, sequence: 0)
    with pytest.raises(AssertionError, match="assert 655 == 658"):
        test_a_stopped_prefill_survives_another_conversation(engine)


def logits_of(engine: ScriptedEngine, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[np.ndarray]]:
    """A greedy turn of a new conversation under SYSTEM, and the last logits of each of its calls."""
    seen: list[mx.array] = []
    forward = ModelRunner.forward

    def watched(self: ModelRunner, *arguments: Any) -> mx.array:
        logits = forward(self, *arguments)
        seen.append(logits[0, -1])
        return logits

    with monkeypatch.context() as patch:
        patch.setattr(ModelRunner, "forward", watched)
        turn = done(list(engine.chat(SYSTEM).ask(user(text), options(temp=0.0, max_tokens=16))))
        found = engine.engine.call(lambda machinery: [np.array(one) for one in seen])
    assert isinstance(found, list)
    return turn, found


def unscripted(model: Path, work: Path) -> ScriptedEngine:
    made = ScriptedEngine(model, work)
    made.unscript()
    return made


def beside_the_canary(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B's logits after A's conversation equal B's logits on an engine that never saw A."""
    alone, shared = unscripted(model, tmp_path / "alone"), unscripted(model, tmp_path / "shared")
    try:
        done(list(shared.chat(SYSTEM).ask(user(f"Mark that the{CANARY}. {SYSTEM}"), options(temp=0.0, max_tokens=300))))
        turn, found = logits_of(shared, "What sings? " + SYSTEM, monkeypatch)
        _, wanted = logits_of(alone, "What sings? " + SYSTEM, monkeypatch)
        secret = shared.engine.call(lambda m: list(m.model.tokenizer.encode(CANARY, add_special_tokens=False)))
        assert isinstance(secret, list)
        log = read_log(shared.log)
        assert contains(log[0].ids, secret)
        assert not contains(log[1].ids, secret)
        assert turn.stats.cached_tokens > 400, "they share the system prompt, so there is something to leak"
        assert len(found) >= 16
        # The first calls of the run alone prefill what the other restored.
        for one, other in zip(reversed(found), reversed(wanted), strict=False):
            assert np.array_equal(one, other)
    finally:
        alone.close()
        shared.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_canary_of_one_conversation_never_shows_in_another(
    kind: str, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_the_canary(models[kind], tmp_path, monkeypatch)


def test_planted_rows_of_another_text_are_seen(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that takes other ids for these: the other conversation's rows are restored."""
    monkeypatch.setattr(lookup, "common_prefix", lambda a, b: min(a.size, b.size))
    with pytest.raises(AssertionError):
        beside_the_canary(models["qwen3"], tmp_path, monkeypatch)


@pytest.mark.slow  # in make test, cache/test_store_machine
def test_the_file_never_outgrows_its_budget(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three conversations of about 1 MB each in 1 MB: books right and length within after every turn."""
    budget = 1 << 20
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=budget)
    engine = ScriptedEngine(models["qwen3"], tmp_path / "work", THOUGHT, cache=cache)

    def books(machinery: Any) -> tuple[int, int, int]:
        machinery.store.drain(30)
        machinery.store.check()
        stats = machinery.store.stats()
        return stats.file_bytes, stats.file_bytes_peak, stats.evictions

    try:
        chats = [engine.chat(f"{number}. {SYSTEM}") for number in range(3)]
        for turn in range(2):
            for number, chat in enumerate(chats):
                ask(chat, f"Turn {turn} of {number}. {SYSTEM}")
                length, peak, evictions = engine.engine.call(books)  # type: ignore[misc]
                assert length <= peak <= budget
        assert evictions > 0, "the budget was never reached"
        with monkeypatch.context() as patch:  # planted: a room that forgets its budget
            patch.setattr(Room, "make", lambda self, entry: self.scratch.allocate(entry.nbytes, 1 << 40))
            ask(chats[0], "More. " + SYSTEM)
            with pytest.raises(AssertionError, match="allowed"):
                engine.engine.call(books)
    finally:
        engine.close()
    assert list((tmp_path / "kv").iterdir()) == []
