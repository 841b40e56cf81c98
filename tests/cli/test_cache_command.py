"""`mlxchat cache stat`, /cache, and the flags of the cache's life."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mlxchat.cache.counters import StoreStats
from mlxchat.cache.kept import KeptFile
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from mlxchat.cli.ages import parse_age
from mlxchat.cli.cache_lines import REASONS, cache_lines
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.run import run
from mlxchat.engine.cache_report import CacheReport
from mlxchat.engine.folders import kept_dirs, note_kept_dir
from mlxchat.engine.hit_rate import HitRate, MissReason, TurnReuse
from mlxchat.errors import UsageError
from support.kvstore import MIB, NAMESPACE, Line, put, random_ids
from support.schemas import validate

pytestmark = pytest.mark.plain


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def keep_a_record(folder: Path, user: str = "abc") -> None:
    store = Store(folder, NAMESPACE, MIB, MIB, print, kept=KeptFile.of(folder, NAMESPACE, "some model"))
    put(store, Line(random_ids(BLOCK)).place(BLOCK), BLOCK, user=user)
    assert store.drain(10)
    store.close()


def test_stat_shows_folders_limits_and_free_disk(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "stat", "--json"]) == 0
    found = validate(json.loads(capsys.readouterr().out))
    assert found["scratch"]["path"] == str(home / "cache")
    assert not found["scratch"]["exists"]
    assert 0 < found["scratch"]["default_budget_bytes"] < found["scratch"]["free_bytes"]
    assert [(folder["path"], folder["files"]) for folder in found["kept"]] == [(str(home / "kv"), [])]
    assert run(["cache", "stat"]) == 0
    out = capsys.readouterr().out
    assert f"scratch  {home / 'cache'} (" in out
    assert "nothing; --cache-persist keeps a chat's KV cache" in out
    assert not home.exists(), "looking makes nothing"


def test_stat_shows_what_is_kept_wherever_it_was_put(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_a_record(home / "kv")
    keep_a_record(tmp_path / "elsewhere")
    note_kept_dir(tmp_path / "elsewhere")
    held = KeptFile.of(tmp_path / "elsewhere", NAMESPACE, "")
    run(["cache", "stat", "--json"])
    found = validate(json.loads(capsys.readouterr().out))
    files = [file for folder in found["kept"] for file in folder["files"]]
    assert [(file["model"], file["records"], file["open"]) for file in files] == [
        ("some model", 1, False),
        ("some model", 1, True),
    ]
    run(["cache", "stat"])
    out = capsys.readouterr().out
    assert "1 records, some model, used just now" in out
    assert "1 records, some model, in use" in out
    os.close(held.descriptor)


def test_stat_of_a_folder_that_was_named(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_a_record(tmp_path / "elsewhere")
    run(["cache", "stat", "--cache-dir", str(tmp_path / "elsewhere"), "--json"])
    found = validate(json.loads(capsys.readouterr().out))
    assert found["scratch"]["path"] == str(tmp_path / "elsewhere")
    assert len(found["kept"][0]["files"]) == 1


def test_a_removed_chat_leaves_the_kept_cache(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "sessions").mkdir(parents=True)
    for name in ("abc", "def"):
        (home / "sessions" / f"{name}.jsonl").write_text(json.dumps({"type": "session", "id": name, "version": 1}))
    keep_a_record(home / "kv", "abc")
    keep_a_record(tmp_path / "elsewhere", "abc")
    note_kept_dir(tmp_path / "elsewhere")
    assert run(["sessions", "rm", "def", "--json"]) == 0
    assert validate(json.loads(capsys.readouterr().out))["kept_records"] == 0
    assert run(["sessions", "rm", "abc", "--json"]) == 0
    assert validate(json.loads(capsys.readouterr().out))["kept_records"] == 2
    assert [path.name for path in (home / "kv").iterdir()] == ["places"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


# -- /cache ----------------------------------------------------------------------------------------------------


def stats() -> StoreStats:
    return StoreStats(
        records=12,
        record_bytes=3_400_000,
        file_bytes=4_000_000,
        file_bytes_peak=5_000_000,
        pins=3,
        free_extents=1,
        free_bytes=600_000,
        queue_bytes=1000,
        writes=20,
        bytes_written=6_000_000,
        bytes_read=250_000,
        evictions=4,
        dropped={"write_error": 2, "full": 1},
        errors=2,
        expired=5,
        damaged=7,
        is_kept=True,
        budget_bytes=8_000_000,
        queue_limit_bytes=64_000_000,
        cooling=True,
    )


def test_the_cache_in_lines() -> None:
    rate = HitRate()
    rate.add(TurnReuse(1000, 900, 300, "budget"))
    rate.add(TurnReuse(1000, 900, 900, None))
    assert cache_lines(CacheReport(rate, stats(), "/kv", True, 2_000_000, 2)) == [
        "reused   1,200 of 2,000 prompt tokens in 2 turns (60 %)",
        "missed   600 tokens: the budget is too small",
        "memory   2.0 MB of KV in this conversation",
        "disk     12 records, 3.4 MB in /kv, kept for later runs, a folder in memory",
        "file     4.0 MB of 8.0 MB, 5.0 MB at most; 1 hole of 600.0 kB (15 %)",
        "pinned   3 records",
        "queue    1.0 kB of 64.0 MB, the disk is left alone for a while",
        "written  20 records, 6.0 MB; read 250.0 kB",
        "gone     4 evicted, 5 expired, 3 not kept (1 full, 2 write error)",
        "errors   2, 7 damaged records put aside",
    ]
    assert cache_lines(CacheReport(HitRate(), None, None, False, 0, 0)) == [
        "reused   no turn yet",
        "memory   0 B of KV in this conversation",
        "disk     nothing is written",
    ]


def test_every_reason_has_words() -> None:
    assert set(REASONS) == set(MissReason.__args__)  # type: ignore[attr-defined]


# -- flags -----------------------------------------------------------------------------------------------------


def test_the_flags_reach_the_engine() -> None:
    flags = ChatFlags(cache_park="0s", cache_ttl="90m", cache_persist=True, cache_tenant="ann")
    cache = flags.engine_options().cache
    assert (cache.park, cache.ttl, cache.persist, cache.tenant) == (0.0, 5400.0, True, "ann")
    cache = ChatFlags().engine_options().cache
    assert (cache.park, cache.ttl, cache.persist, cache.tenant) == (900.0, None, False, "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (ChatFlags(cache_persist=True, no_save=True), "--cache-persist and --no-save"),
        (ChatFlags(cache_persist=True, no_cache=True), "--cache-persist and --no-cache"),
    ],
)
def test_a_kept_cache_of_a_chat_that_leaves_nothing_is_refused(flags: ChatFlags, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        flags.check()


def test_an_age_that_is_none_names_its_flag() -> None:
    with pytest.raises(UsageError, match="--cache-ttl takes an age"):
        ChatFlags(cache_ttl="soon").engine_options()
    with pytest.raises(UsageError, match="--cache-park takes an age"):
        ChatFlags(cache_park="later").engine_options()
    assert parse_age("90s") == 90


def test_folders_of_kept_caches_are_remembered_once(home: Path, tmp_path: Path) -> None:
    for _ in range(3):
        note_kept_dir(tmp_path / "elsewhere")
        note_kept_dir(home / "kv")
    assert kept_dirs() == [home / "kv", tmp_path / "elsewhere"]
