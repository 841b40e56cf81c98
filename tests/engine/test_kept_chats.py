"""--cache-persist: a chat that goes on in a new engine is warm; whatever became of the file, its answer is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cache.kept_folder import forget, kept_files
from mlxchat.engine.chat import Chat
from mlxchat.engine.conversations import Conversations
from mlxchat.engine.events import TurnDone
from mlxchat.engine.messages import Message
from mlxchat.engine.options import CacheOptions
from mlxchat.engine.setup import Machinery
from support.kvstore import MIB
from support.oracle import oracle_new, read_log
from support.scripted import ScriptedEngine, ask, model_folder

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 60
THOUGHT = "The user asks.\n</think>\n\nParis."
KINDS = ("gemma3_text", "qwen3_5")

Spoil = Callable[[Path], None]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: model_folder(tmp_path_factory.mktemp(kind) / "model", kind, "qwen36") for kind in KINDS}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))


def program(model: Path, tmp_path: Path, run: str) -> ScriptedEngine:
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, persist=True)
    return ScriptedEngine(model, tmp_path / run, THOUGHT, cache=cache)


def turn(
    model: Path, tmp_path: Path, run: str, text: str, history: Sequence[Message] = ()
) -> tuple[TurnDone, list[Message], ScriptedEngine]:
    """One turn in a program of its own, that goes on from `history`."""
    engine = program(model, tmp_path, run)
    try:
        chat = Chat(engine.engine, SYSTEM, history)
        done = ask(chat, text)
        engine.check()
        return done, chat.messages[1:], engine
    finally:
        engine.close()


def beyond_the_oracle(first: ScriptedEngine, second: ScriptedEngine, done: TurnDone) -> int:
    """Tokens that the second program prefilled beyond those that neither had fed before."""
    [now] = read_log(second.log)
    prompt = now.prompt(done.stats.prompt_tokens)
    return now.prefilled(done.stats.prompt_tokens) - oracle_new(prompt, [fed.ids for fed in read_log(first.log)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_that_goes_on_in_a_new_program_is_warm(kind: str, models: dict[str, Path], tmp_path: Path) -> None:
    _, said, first = turn(models[kind], tmp_path, "one", "What is the capital? " + SYSTEM)
    done, _, second = turn(models[kind], tmp_path, "two", "Sure?", said)
    assert done.stats.restore_kind in ("anchor", "block")
    assert done.stats.common_prefix_tokens == done.stats.cached_disk_tokens == done.stats.cached_tokens > 1000
    assert beyond_the_oracle(first, second, done) <= 4
    assert second.notices == []
    assert (second.engine.info.cache_kept, second.engine.info.cache_directory) == (True, str(tmp_path / "kv"))


def test_planted_a_program_that_does_not_park_leaves_less(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its end written, the recurrent state that the next program needs is missing."""
    monkeypatch.setattr(Conversations, "park_all", lambda self: None)
    with pytest.raises(AssertionError):
        test_a_chat_that_goes_on_in_a_new_program_is_warm("qwen3_5", models, tmp_path)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(5000, len(data), 20_000):
        data[at] ^= 0x55
    path.write_bytes(data)


def _older(path: Path) -> None:
    data = path.read_bytes().replace(b"\x89MLXKV\r\n\x02", b"\x89MLXKV\r\n\x01")
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def _no_notes(path: Path) -> None:
    path.with_suffix(".json").unlink()


def _gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("spoil", [_flip, _older, _cut, _no_notes, _gone], ids=lambda spoil: spoil.__name__.strip("_"))
def test_whatever_became_of_the_file_the_answer_is_right(spoil: Spoil, models: dict[str, Path], tmp_path: Path) -> None:
    _, said, first = turn(models["gemma3_text"], tmp_path, "one", "What is the capital? " + SYSTEM)
    [path] = kept_files(tmp_path / "kv")
    spoil(path)
    done, _, second = turn(models["gemma3_text"], tmp_path, "two", "Sure?", said)
    assert done.message.text == "Paris."
    notices = " ".join(second.notices)
    if spoil is _older:
        assert "put aside" in notices
        assert done.stats.cached_tokens == 0
    elif spoil is _no_notes:
        assert beyond_the_oracle(first, second, done) <= 4
    [path] = kept_files(tmp_path / "kv")
    third, _, _ = turn(models["gemma3_text"], tmp_path, "three", "Sure?", said)
    assert third.stats.cached_tokens >= done.stats.prompt_tokens - 60, "and what was lost is there again"


def test_other_weights_are_another_cache(models: dict[str, Path], tmp_path: Path) -> None:
    _, said, _ = turn(models["gemma3_text"], tmp_path, "one", "What is the capital? " + SYSTEM)
    weights = next(models["gemma3_text"].glob("*.safetensors"))
    os.utime(weights, (1.0, 1.0))
    done, _, second = turn(models["gemma3_text"], tmp_path, "two", "Sure?", said)
    assert done.stats.cached_tokens == 0
    assert second.notices == []


def test_two_programs_do_not_share_the_file(models: dict[str, Path], tmp_path: Path) -> None:
    first = program(models["gemma3_text"], tmp_path, "one")
    second = program(models["gemma3_text"], tmp_path, "two")
    try:
        assert second.notices == [
            "another program has the kept KV cache of this model; this chat's KV cache ends with it"
        ]
        assert not second.engine.info.cache_kept
        assert ask(second.chat(SYSTEM), "a").message.text == ask(first.chat(SYSTEM), "a").message.text == "Paris."
    finally:
        first.close()
        second.close()


def test_a_deleted_chat_is_not_found_again(models: dict[str, Path], tmp_path: Path) -> None:
    engine = program(models["gemma3_text"], tmp_path, "one")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    said, name = chat.messages[1:], chat.name
    engine.close()
    assert forget(tmp_path / "kv", name) > 0
    done, _, _ = turn(models["gemma3_text"], tmp_path, "two", "Sure?", said)
    assert done.stats.cached_tokens == 0


def test_a_chat_deleted_while_it_runs_elsewhere_goes_with_the_next_turn(
    models: dict[str, Path], tmp_path: Path
) -> None:
    engine = program(models["gemma3_text"], tmp_path, "one")
    try:
        one, two = engine.chat(SYSTEM), engine.chat("Other. " + SYSTEM)
        ask(one, "a")
        assert forget(tmp_path / "kv", one.name) == 0
        ask(two, "b")

        def users(machinery: Machinery) -> Any:
            assert machinery.store is not None
            return set(machinery.store._index.users)

        assert engine.engine.call(users) == {two.name}
    finally:
        engine.close()


def test_the_folder_is_remembered_for_deletion(models: dict[str, Path], tmp_path: Path) -> None:
    from mlxchat.engine import folders

    turn(models["gemma3_text"], tmp_path, "one", "a")
    turn(models["gemma3_text"], tmp_path, "two", "a")
    assert folders.kept_dirs() == [tmp_path / "home" / "kv", tmp_path / "kv"]
    assert (tmp_path / "home" / "kv" / "places").stat().st_mode & 0o777 == 0o600
