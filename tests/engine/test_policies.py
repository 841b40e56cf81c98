"""What the engine keeps, refills, expires and deletes, and how much it writes for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlxchat.cache import writer
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from mlxchat.cache.writer import Writer
from mlxchat.engine import cache_setup, conversations
from mlxchat.engine.checkpoints import Checkpoints
from mlxchat.engine.conversations import Conversations
from mlxchat.engine.options import CacheOptions
from mlxchat.engine.reuse import Reuse
from mlxchat.engine.sequence import Sequence
from support import tiny_models
from support.driver import Driver
from support.kvstore import MIB, Clock, FaultyFiles, io_error
from support.scripted import ScriptedEngine, ask, model_folder

pytestmark = pytest.mark.exact

KINDS = ("qwen3", "gemma3_text", "qwen3_5")


@pytest.fixture(scope="module")
def model() -> Callable[[str], Any]:
    built: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in built:
            built[kind] = tiny_models.build(kind)
        return built[kind]

    return get


@pytest.fixture
def draw() -> Callable[[int], list[int]]:
    rng = np.random.default_rng(31)
    return lambda count: rng.integers(5, 1000, count).tolist()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def build(model: Any, **store: Any) -> Driver:
        made.append(Driver(model, tmp_path / str(len(made)), **store))
        return made[-1]

    yield build
    for driver in made:
        driver.close()


# -- back-pressure and holes -----------------------------------------------------------------------------------


def slow_disk(
    drive: Callable[..., Driver], model: Any, draw: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> Driver:
    """A turn whose decode completes two blocks while the disk stands still and the queue has room for one."""
    files = FaultyFiles()
    driver = drive(model, files=files)
    prompt = draw(300)
    driver.turn("a", prompt, [], {299: "stable_user"})
    assert driver.store is not None
    assert driver.store.drain(60)
    [block] = [entry for entry in driver.store._index if entry.header.place.is_block]
    driver.store._writer.queue_limit = block.nbytes * 3 // 2
    files.gate.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_wait_for_progress", lambda self: pytest.fail("decode waited for the disk"))
        try:
            driver.turn("a", [*prompt, *draw(2)], draw(480))
        finally:
            files.gate.set()
    return driver


def test_decode_never_waits_and_the_holes_are_filled_when_the_turn_ends(
    drive: Callable[..., Driver],
    model: Callable[[str], Any],
    draw: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = slow_disk(drive, model("qwen3"), draw, monkeypatch)
    sequence = driver.sequence("a")
    assert sequence.holes, "the queue was never full"
    assert driver.store is not None
    assert driver.store.drain(120)
    holes, whole = set(sequence.holes), sequence.fed.tolist()
    driver.turn("a", [*whole, *draw(2)], [])  # a turn that the disk keeps up with
    assert driver.store.drain(120)
    assert sequence.holes == set()
    live = sequence.live
    assert live is not None
    there = {n for n in holes if driver.store.block(live.chain.keys[n], live.ids[n * BLOCK : (n + 1) * BLOCK])}
    assert there == holes
    assert driver.troubles == []


def test_planted_holes_that_nobody_remembers_stay_open(
    drive: Callable[..., Driver],
    model: Callable[[str], Any],
    draw: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Checkpointer, "_note_hole", lambda self, end: None)
    with pytest.raises(AssertionError, match="never full"):
        test_decode_never_waits_and_the_holes_are_filled_when_the_turn_ends(drive, model, draw, monkeypatch)


def test_a_disk_that_hangs_is_waited_for_once(
    drive: Callable[..., Driver],
    model: Callable[[str], Any],
    draw: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 0.3)
    files = FaultyFiles()
    driver = drive(model("qwen3"), queue=200_000, files=files)
    files.gate.clear()
    try:
        driver.turn("a", draw(1600), [])
        assert driver.sequence("a").holes
    finally:
        files.gate.set()


# -- usage at a tight budget -----------------------------------------------------------------------------------


@pytest.mark.slow  # in make test, cache/test_usage
def test_many_short_chats_keep_their_system_prompt(
    drive: Callable[..., Driver], model: Callable[[str], Any], draw: Callable[[int], list[int]]
) -> None:
    """Local layers of the system prompt too: every chat goes on from its end, and stale chats are lost."""
    probe = drive(model("gemma3_text"))
    system = draw(600)
    probe.turn("0", system + draw(500), [], {600: "system_end"})
    probe.drop_live("0")
    assert probe.store is not None
    assert probe.store.drain(120)
    one_chat = probe.store.stats().record_bytes
    driver = drive(model("gemma3_text"), budget=3 * one_chat)
    for number in range(10):
        stats, _ = driver.turn(str(number), system + draw(500), [], {600: "system_end"})
        driver.drop_live(str(number))
        driver.reuse.unpin(driver.sequence(str(number)))
        assert driver.store is not None
        assert driver.store.drain(120)
        assert stats.cached_tokens == (600 if number else 0)
    assert driver.store.stats().evictions > 0


@pytest.mark.slow
def test_one_ever_longer_chat_keeps_its_global_layers(
    drive: Callable[..., Driver], model: Callable[[str], Any], draw: Callable[[int], list[int]]
) -> None:
    """In room for all its global rows and a part of its local ones, it always goes on from its last turn."""
    wide = drive(model("gemma3_text"))
    ids = draw(3000)
    wide.turn("a", ids, [])
    assert wide.store is not None
    assert wide.store.drain(120)
    by_group: dict[str, int] = {}
    for entry in wide.store._index:
        by_group[entry.header.group] = by_group.get(entry.header.group, 0) + entry.nbytes
    local = next(size for name, size in by_group.items() if name.startswith("local"))
    budget = by_group["global"] + local // 2
    driver = drive(model("gemma3_text"), budget=budget)
    for turn, end in enumerate(range(600, 3001, 400)):
        stats, _ = driver.turn("a", ids[:end], [], {end - 1: "stable_user"})
        driver.drop_live("a")
        assert driver.store is not None
        assert driver.store.drain(120)
        assert stats.cached_tokens == (end - 400 if turn else 0), f"turn {turn}"
    there = {(e.header.group, e.header.position) for e in driver.store._index if e.header.place.is_block}
    assert {position for group, position in there if group == "global"} == set(range(256, 3001, 256))
    assert ("local:512", 256) not in there
    assert driver.store.stats().evictions > 0


# -- what is shared, written, deleted --------------------------------------------------------------------------


def test_a_system_prompt_of_a_hundred_chats_is_stored_once(
    drive: Callable[..., Driver], model: Callable[[str], Any], draw: Callable[[int], list[int]]
) -> None:
    driver = drive(model("qwen3"))
    system = draw(512)
    for number in range(100):
        driver.turn(str(number), system + draw(20), [], {512: "system_end"})
        driver.sequence(str(number)).live = None
        driver.reuse.unpin(driver.sequence(str(number)))
    assert driver.store is not None
    assert driver.store.drain(120)
    blocks = [entry for entry in driver.store._index if entry.header.place.is_block]
    assert [entry.header.position for entry in sorted(blocks, key=lambda entry: entry.header.position)] == [256, 512]
    assert all(len(entry.users) == 100 for entry in blocks)
    for number in range(99):
        driver.reuse.forget(driver.sequence(str(number)))
    assert {entry.header.position for entry in driver.store._index} == {256, 512, 531}
    driver.reuse.forget(driver.sequence("99"))
    assert driver.store.stats().records == 0


@pytest.mark.parametrize(
    "kind", ["qwen3_5", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("qwen3", "gemma3_text"))]
)
def test_bytes_written_are_those_of_the_tokens_kept(
    kind: str, drive: Callable[..., Driver], model: Callable[[str], Any], draw: Callable[[int], list[int]]
) -> None:
    """At most 1.1 × the KV of kept tokens and two states a request; the same again writes nothing."""
    driver = drive(model(kind))
    assert driver.store is not None
    ids, replies = draw(1150), [draw(300) for _ in range(4)]

    def chat(name: str) -> None:
        for end, reply in zip(range(400, 1151, 250), replies, strict=True):
            driver.turn(name, ids[:end], reply, {end - 1: "stable_user"}, drops=True)
        driver.drop_live(name)

    chat("a")
    assert driver.store.drain(120)
    stats = driver.store.stats()
    rows = row_bytes(driver)
    state = max((e.nbytes for e in driver.store._index if e.header.group == "state"), default=0)
    heads = sum(entry.nbytes - entry.header.payload_bytes for entry in driver.store._index)
    assert stats.bytes_written - heads <= 1.1 * rows * len(ids) + 4 * 2 * state
    chat("b")
    assert driver.store.drain(120)
    assert driver.store.stats().bytes_written == stats.bytes_written, "a second identical run"


def row_bytes(driver: Driver) -> int:
    """Bytes of KV that one token brings, over all layers that hold rows: from a stored block, without its head."""
    assert driver.store is not None
    whole = {e.header.group: e for e in driver.store._index if e.header.place.is_block and e.header.group != "state"}
    return sum(e.header.payload_bytes // (e.header.position - e.header.row_start) for e in whole.values())


def test_planted_a_tail_for_every_call_writes_too_much(
    drive: Callable[..., Driver],
    model: Callable[[str], Any],
    draw: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = Reuse.record_decode

    def often(self: Reuse, sequence: Sequence, dropped: bool) -> int:
        live = sequence.live
        assert live is not None
        assert self.store is not None
        if live.length % 4 == 0:
            Checkpointer(self.store, live).tail(live.length, wait=True)
        return record(self, sequence, dropped)

    monkeypatch.setattr(Reuse, "record_decode", often)
    monkeypatch.setattr(Store, "rows_held", lambda self, place, group, rows, user="": rows[0])  # each from the edge on
    with pytest.raises(AssertionError):
        test_bytes_written_are_those_of_the_tokens_kept("qwen3", drive, model, draw)


# -- conversations ---------------------------------------------------------------------------------------------


def test_the_engine_knows_a_bounded_number_of_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_KNOWN", 5)
    known = Conversations(Reuse(list, None, None, b"", off=True))
    numbers = []
    for number in range(20):
        sequence = known.of(str(number), "2026-01-02")
        known.leave_all_but(sequence)
        numbers.append(sequence.number)
    assert list(known.known) == ["15", "16", "17", "18", "19"]
    assert numbers == list(range(1, 21)), "a number is never given twice"
    assert known.of("17", "2026-01-02") is known.known["17"]
    assert list(known.known)[-1] == "17"


def test_what_is_idle_for_too_long_leaves_memory_and_disk(
    drive: Callable[..., Driver], model: Callable[[str], Any], draw: Callable[[int], list[int]]
) -> None:
    clock = Clock()
    driver = drive(model("qwen3"), now=clock)
    known = Conversations(driver.reuse, 60.0, clock)
    driver.sequences = known.known
    ids = {name: draw(600) for name in "ab"}
    for name, now in (("a", 0.0), ("b", 50.0)):
        clock.now = now
        known.of(name, "2026-01-02")
        driver.turn(name, ids[name], [])
        assert driver.store is not None
        assert driver.store.drain(120)
    clock.now = 70.0
    known.expire()
    assert known.known["a"].live is None
    assert known.known["b"].live is not None
    stats, _ = driver.turn("b", ids["b"] + draw(5), [])
    assert stats.cached_tokens == 600
    clock.now = 200.0
    known.expire()
    assert driver.store is not None
    assert driver.store.stats().records == 0
    stats, _ = driver.turn("a", ids["a"] + draw(5), [])
    assert (stats.cached_tokens, stats.shortfall_reason) == (0, "evicted")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("policies") / "model")


SYSTEM = "The window, the layer, the block and the prefix. " * 40


def test_a_deleted_chat_leaves_only_what_others_use(folder: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.")
    try:
        one, two = engine.chat(SYSTEM), engine.chat(SYSTEM)
        ask(one, "a " + SYSTEM)
        ask(two, "b " + SYSTEM)
        engine.engine.call(lambda machinery: machinery.store.drain(120))
        before = engine.engine.cache_report()
        assert before.conversations == 2
        assert engine.engine.forget(one.name) > 0
        after = engine.engine.cache_report()
        assert before.store is not None
        assert after.store is not None
        assert 0 < after.store.records < before.store.records
        assert after.conversations == 1
        engine.check()
        again = ask(two, "c")
        assert again.stats.cached_tokens > len(SYSTEM) / 10
        assert engine.engine.forget(two.name) > 0
        last = engine.engine.cache_report().store
        assert last is not None
        assert (last.records, last.pins, last.file_bytes) == (0, 0, 0)
    finally:
        engine.close()


def test_an_idle_engine_expires_by_itself(folder: Path, tmp_path: Path) -> None:
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, ttl=0.4)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
    try:
        ask(engine.chat(SYSTEM), "a")
        until = time.monotonic() + 30
        while (report := engine.engine.cache_report()).store is None or report.store.records or report.live_bytes:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        engine.close()


def resting(engine: ScriptedEngine) -> int:
    """Bytes of KV in memory once the engine has had the time to let go of them."""
    until = time.monotonic() + 30
    while (held := engine.engine.cache_report().live_bytes) and time.monotonic() < until:
        time.sleep(0.05)
    return held


@pytest.mark.parametrize("park", [0.0, 0.3])
def test_an_idle_chat_holds_no_memory_and_goes_on_from_the_disk(folder: Path, tmp_path: Path, park: float) -> None:
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, park=park)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
    try:
        chat = engine.chat(SYSTEM)
        ask(chat, "a")
        if park == 0:
            assert engine.engine.cache_report().live_bytes == 0
        assert resting(engine) == 0
        stats = ask(chat, "b").stats
        assert stats.prefill_tokens <= stats.prompt_tokens - stats.common_prefix_tokens + 4
        assert stats.cached_disk_tokens > 0
        engine.check()
    finally:
        engine.close()


@pytest.mark.parametrize("park", [0.0, 0.01])
def test_without_a_disk_that_takes_it_an_idle_chat_stays_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, park: float
) -> None:
    monkeypatch.setattr(Store, "accepts", property(lambda self: False))
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, park=park)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
    try:
        chat = engine.chat(SYSTEM)
        ask(chat, "a")
        for _ in range(3):  # each is answered between two looks of an idle engine
            time.sleep(0.05)
            assert engine.engine.cache_report().live_bytes > 0
        assert ask(chat, "b").stats.restore_kind == "live"
    finally:
        engine.close()


def long_idle(machinery: Any) -> None:
    """As after hours of silence: several looks, with the time to write between them."""
    machinery.loop.conversations.park = -1.0
    for _ in range(3):
        machinery.loop.idle()
        machinery.store.drain(30)
    machinery.loop.conversations.park = None


@pytest.mark.parametrize("trouble", ["full", "small"])
def test_a_chat_that_the_disk_could_not_bring_back_stays_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The disk takes records again, as far as anyone knows; that it doesn't shows only as they are written."""
    monkeypatch.setattr(writer, "FIRST_COOL_DOWN_S", 0.0)
    files = FaultyFiles()
    files.write_error = io_error() if trouble == "full" else None
    monkeypatch.setattr(cache_setup, "Store", lambda *given, **named: Store(*given, files=files, **named))
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB if trouble == "full" else MIB // 4, park=None)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
    try:
        chat = engine.chat(SYSTEM)
        ask(chat, "a")
        engine.engine.call(long_idle)
        assert ask(chat, "b").stats.restore_kind == "live"
        assert len(engine.notices) == (trouble == "full")
        files.write_error = None
        if trouble == "full":
            engine.engine.call(long_idle)
            assert engine.engine.cache_report().live_bytes == 0
        engine.check()
    finally:
        engine.close()


def test_parking_and_expiry_that_fail_are_said_once_and_cost_no_answer(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(self: Any, *_: Any) -> int:
        raise RuntimeError("planted")

    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, ttl=3600.0, park=None)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
    try:
        one, two = engine.chat(SYSTEM), engine.chat("Another. " + SYSTEM)
        ask(one, "a")
        monkeypatch.setattr(Checkpoints, "park", planted)
        monkeypatch.setattr(Store, "expire", planted)
        engine.engine.call(long_idle)
        ask(two, "a")  # parks the first, and looks for what has expired
        ask(one, "b")
        [notice] = engine.notices
        assert "planted" in notice
        engine.check()
    finally:
        engine.close()


def test_an_idle_engine_that_parks_at_once_rests(folder: Path, tmp_path: Path) -> None:
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, park=0.0)
    engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)

    def waits(machinery: Any) -> float:
        machinery.loop.idle()
        return float(machinery.loop.idle_in_s)

    try:
        assert engine.engine.call(waits) > 0.5  # type: ignore[operator]
    finally:
        engine.close()


def test_what_the_disk_did_not_take_of_a_prompt_is_parked_though_its_reply_drops(
    drive: Callable[..., Driver],
    model: Callable[[str], Any],
    draw: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, prompt = drive(model("qwen3")), draw(600)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "accepts", property(lambda self: False))
        driver.turn("a", prompt, draw(20), {599: "stable_user"}, drops=True, stable=599)
    assert driver.store is not None
    assert driver.store.stats().records == 0
    driver.drop_live("a")
    assert driver.reuse.reach(np.array(prompt, np.int32), None) == 599


def test_tenants_share_nothing(folder: Path, tmp_path: Path) -> None:
    """Not even a kept file, by which they could."""

    def turn(tenant: str) -> int:
        cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=64 * MIB, tenant=tenant, persist=True)
        engine = ScriptedEngine(folder, tmp_path / "work", "Yes.", cache=cache)
        try:
            return ask(engine.chat(SYSTEM), "a").stats.cached_tokens
        finally:
            engine.close()

    assert turn("one") == turn("two") == 0
    assert turn("one") > len(SYSTEM) / 10
