"""Where nothing can be checkpointed or rewound, the user is told once and the answer comes all the same."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlxchat.cache.store import Store
from mlxchat.engine import cache_setup, fresh_caches, setup
from mlxchat.engine.options import CacheOptions
from support.kvstore import FaultyFiles, io_error
from support.oracle import costs, read_log
from support.scripted import ScriptedEngine, ask, model_folder

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("trouble") / "model")


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Any]:
    made: list[ScriptedEngine] = []

    def begin(**how: Any) -> ScriptedEngine:
        made.append(ScriptedEngine(model, tmp_path / "work", "One.", "Two.", "Three.", **how))
        return made[-1]

    yield begin
    for engine in made:
        engine.check()
        engine.close()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    """The disk under the next engine's store."""
    disk = FaultyFiles()
    monkeypatch.setattr(cache_setup, "Store", lambda *given, **named: Store(*given, files=disk, **named))
    return disk


def three_turns(engine: ScriptedEngine) -> list[Any]:
    chat = engine.chat(SYSTEM)
    turns = [ask(chat, text) for text in ("a", "b", "c")]
    assert [turn.message.text for turn in turns] == ["One.", "Two.", "Three."]
    return turns


def extra(engine: ScriptedEngine, turns: list[Any]) -> list[int]:
    return [cost.extra for cost in costs(read_log(engine.log), [turn.stats.prompt_tokens for turn in turns])]


@pytest.mark.parametrize("folder", ["/dev/null/kv", "/proc/kv"])
def test_a_folder_that_can_not_be_used(start: Any, folder: str) -> None:
    engine = start(cache=CacheOptions(directory=Path(folder)))
    turns = three_turns(engine)
    assert len(engine.notices) == 1
    assert "nothing is checkpointed to disk" in engine.notices[0]
    assert "\n" not in engine.notices[0]
    assert max(extra(engine, turns)) <= 4, "rewound in memory all the same"
    assert engine.engine.info.cache_directory is None


def test_a_read_only_folder(start: Any, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path) -> int:
        raise io_error(errno.EROFS)

    monkeypatch.setattr(files, "open_unlinked", refuse)
    engine = start()
    turns = three_turns(engine)
    [notice] = engine.notices
    assert "Read-only file system" in notice
    assert max(extra(engine, turns)) <= 4


def test_a_folder_that_vanishes(start: Any, tmp_path: Path) -> None:
    """The file has no name anyway: nothing changes."""
    engine = start(drop_live="1")
    chat = engine.chat(SYSTEM)
    first = ask(chat, "a")
    shutil.rmtree(tmp_path / "work" / "kv")
    turns = [first, ask(chat, "b"), ask(chat, "c")]
    assert [turn.message.text for turn in turns] == ["One.", "Two.", "Three."]
    assert max(extra(engine, turns)) <= 4
    assert engine.notices == []


def test_a_folder_in_memory_is_said_where_nobody_chose_it(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_setup, "is_memory_backed", lambda path: True)
    monkeypatch.setattr(setup, "is_memory_backed", lambda path: True)
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    usual = start(cache=CacheOptions())
    [notice] = usual.notices
    assert "is kept in memory" in notice
    assert usual.engine.cache_report().in_memory
    chosen = start(cache=CacheOptions(directory=tmp_path / "chosen"))
    assert chosen.notices == []
    assert chosen.engine.info.cache_in_memory


@pytest.mark.parametrize("drop_live", ["", "1"])
def test_a_drive_that_vanishes(start: Any, files: FaultyFiles, drop_live: str) -> None:
    engine = start(drop_live=drop_live)
    chat = engine.chat(SYSTEM)
    assert ask(chat, "a").message.text == "One."
    engine.engine.call(lambda m: m.store.drain(30))
    files.write_error, files.read_error = io_error(), io_error()
    second, third = ask(chat, "b"), ask(chat, "c")
    assert [second.message.text, third.message.text] == ["Two.", "Three."]
    engine.engine.call(lambda m: m.store.drain(30))
    kinds = {"can't write": sum("can't write" in line for line in engine.notices)}
    kinds["can't be used"] = sum("can't be used" in line for line in engine.notices)
    assert kinds["can't write"] == 1
    assert kinds["can't be used"] == (1 if drop_live else 0)
    assert len(engine.notices) == sum(kinds.values())
    if drop_live:
        assert second.stats.cached_tokens == 0
        assert second.stats.prefill_tokens == second.stats.prompt_tokens


def test_a_writer_that_dies(start: Any, files: FaultyFiles) -> None:
    engine = start()
    files.write_crash = MemoryError("a fault on purpose")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    assert not engine.engine.call(lambda m: m.store.drain(30)), "it is dead by now"
    assert [ask(chat, text).message.text for text in ("b", "c")] == ["Two.", "Three."]
    assert len(engine.notices) == 1
    assert "the writer stopped" in engine.notices[0]


def test_a_cache_class_that_is_not_known(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class SummaryCache(KVCache):  # type: ignore[misc]
        """A class that nobody taught us to rewind."""

    def make(model: Any) -> list[Any]:
        return [SummaryCache() for _ in make_prompt_cache(model)]

    monkeypatch.setattr(fresh_caches, "make_prompt_cache", make)
    engine = start()
    turns = three_turns(engine)
    assert len(engine.notices) == 1
    assert "SummaryCache" in engine.notices[0]
    assert [turn.stats.shortfall_reason for turn in turns] == ["none", "unsupported_class", "unsupported_class"]
    assert [turn.stats.cached_tokens for turn in turns] == [0, 0, 0]
    assert not engine.engine.info.reuse


def test_a_library_that_changed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round trip at start-up sees a class that no longer does what it did; the chat goes on without reuse."""
    monkeypatch.setattr(KVCache, "trim", lambda self, count: count)
    engine = start()
    turns = three_turns(engine)
    assert len(engine.notices) == 1
    assert engine.notices[0].startswith("KV reuse is off: KVCache isn't what it was")
    assert [turn.stats.shortfall_reason for turn in turns] == ["none", "unsupported_class", "unsupported_class"]
    assert [turn.stats.cached_tokens for turn in turns] == [0, 0, 0]


def test_no_cache(start: Any, tmp_path: Path) -> None:
    engine = start(cache=CacheOptions(enabled=False, directory=tmp_path / "kv"))
    turns = three_turns(engine)
    assert engine.notices == []
    assert [turn.stats.shortfall_reason for turn in turns] == ["none", "off", "off"]
    assert [turn.stats.prefill_tokens for turn in turns] == [turn.stats.prompt_tokens for turn in turns]
    assert min(extra(engine, turns)[1:]) > 500, "the oracle sees what was not reused"
    assert not (tmp_path / "kv").exists()


# -- the queue ---------------------------------------------------------------------------------------------------


def follow_up(start: Any, files: FaultyFiles) -> tuple[ScriptedEngine, list[Any]]:
    """Two turns, the live sequence dropped between them, while the disk takes not one byte."""
    files.gate.clear()
    try:
        engine = start(drop_live="1")
        chat = engine.chat(SYSTEM)
        turns = [ask(chat, "a"), ask(chat, "b")]
        writes = engine.engine.call(lambda m: m.store.stats().writes)
        assert (writes, files.held) == (0, True)
    finally:
        files.gate.set()
    return engine, turns


def test_a_follow_up_sent_at_once_finds_the_queued_records(start: Any, files: FaultyFiles) -> None:
    engine, turns = follow_up(start, files)
    assert turns[1].stats.cached_disk_tokens == turns[1].stats.cached_tokens > 500
    assert extra(engine, turns)[1] <= 4
    assert engine.engine.call(lambda m: m.store.drain(30))
    engine.check()


def test_planted_records_that_are_found_only_once_written_are_seen(
    start: Any, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = Store.lookup

    def written_only(self: Store, *given: Any) -> list[Any]:
        found = lookup(self, *given)
        return [m for m in found if all(entry.payload is None for entry in m.groups.values())]

    below = Store.below

    def written_below(self: Store, parent: bytes) -> Any:
        found = below(self, parent)
        return {ids: groups for ids, groups in found.items() if all(one.payload is None for one in groups.values())}

    monkeypatch.setattr(Store, "lookup", written_only)
    monkeypatch.setattr(Store, "below", written_below)
    engine, turns = follow_up(start, files)
    assert extra(engine, turns)[1] > 500
