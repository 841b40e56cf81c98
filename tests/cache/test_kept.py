"""A kept file: what a later program finds in it, what it refuses, what is deleted for good."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlxchat.cache import kept_folder
from mlxchat.cache.kept import KeptBusy, KeptFile
from mlxchat.cache.keys import BLOCK, namespace_key
from mlxchat.cache.scratch import ScratchFile
from mlxchat.cache.store import Store
from support.kvstore import (
    MIB,
    NAMESPACE,
    FaultyFiles,
    Line,
    entry_at,
    io_error,
    payload,
    put,
    random_ids,
    read_back,
    record_bytes,
    specs,
)

pytestmark = pytest.mark.plain

ONE = record_bytes()
LINE = Line(random_ids(6 * BLOCK + 50))
OTHER = Line(random_ids(4 * BLOCK, seed=7))

Opener = Callable[..., Store]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def open_store(tmp_path: Path, said: list[str]) -> Iterator[Opener]:
    """Opens the kept store of a namespace, as each program would."""
    opened: list[Store] = []

    def make(
        namespace: bytes = NAMESPACE,
        budget: int = MIB,
        files: FaultyFiles | None = None,
        now: Callable[[], float] = time.time,
    ) -> Store:
        kept = KeptFile.of(tmp_path / "kv", namespace, "a model", files)
        opened.append(Store(tmp_path, namespace, budget, MIB, said.append, files, kept=kept, now=now))
        opened[-1].check()
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def file_of(tmp_path: Path, namespace: bytes = NAMESPACE) -> Path:
    return tmp_path / "kv" / f"{namespace.hex()}.kv"


def fill(store: Store, line: Line = LINE, user: str = "", *, last: int = 6) -> None:
    for end in range(BLOCK, last * BLOCK + 1, BLOCK):
        put(store, line.place(end), end, wait=True, user=user)
    assert store.drain(10)


def found(store: Store, line: Line = LINE) -> list[int]:
    """Blocks that are there and whose every byte is right."""
    there = [n for n, place in enumerate(line.blocks()) if store.contains(place, "global")]
    _, failed = read_back(store, [entry_at(store, line.place((n + 1) * BLOCK)) for n in there])
    store.check()
    bad = {entry.header.position // BLOCK - 1 for entry in failed}
    return [n for n in there if n not in bad]


def test_a_later_program_finds_what_was_kept(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first)
    put(first, LINE.place(6 * BLOCK + 50), 6 * BLOCK + 50)
    put(first, LINE.place(512), 512, "state", floats=9, user="größe")
    assert first.drain(10)
    first.close()
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(tmp_path).with_suffix(".json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700
    second = open_store()
    assert found(second) == [0, 1, 2, 3, 4, 5]
    entries = [entry_at(second, LINE.place(6 * BLOCK + 50)), entry_at(second, LINE.place(512), "state")]
    assert read_back(second, entries) == (entries, [])
    assert entries[1].users == {"größe"}
    assert second.stats().damaged == 0


def test_a_file_that_was_never_written_to_is_taken_away(open_store: Opener, tmp_path: Path) -> None:
    open_store().close()
    assert list((tmp_path / "kv").iterdir()) == []


def test_the_order_of_use_and_the_users_outlive_the_program(open_store: Opener) -> None:
    times = iter(range(1000))
    first = open_store(now=lambda: float(next(times)))
    for line in (LINE, OTHER):
        fill(first, line, "a", last=1)
    first.touch([LINE.place(BLOCK)], [entry_at(first, LINE.place(BLOCK))], "b")
    before = [entry.header.place for entry in first._index]
    first.close()
    second = open_store()
    assert [entry.header.place for entry in second._index] == before == [OTHER.place(BLOCK), LINE.place(BLOCK)]
    assert entry_at(second, LINE.place(BLOCK)).users == {"a", "b"}


@pytest.mark.parametrize(
    "notes", [None, b"", b"{", b"[]", b'{"version": 1, "label": "", "users": [], "records": [[1]]}']
)
def test_without_its_notes_a_record_belongs_to_who_wrote_it(
    open_store: Opener, tmp_path: Path, notes: bytes | None
) -> None:
    first = open_store()
    fill(first, user="a")
    first.close()
    path = file_of(tmp_path).with_suffix(".json")
    path.unlink() if notes is None else path.write_bytes(notes)
    second = open_store()
    assert found(second) == [0, 1, 2, 3, 4, 5]
    assert entry_at(second, LINE.place(BLOCK)).users == {"a"}


def test_the_file_is_one_programs_at_a_time(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first)
    with pytest.raises(KeptBusy):
        open_store()
    code = (
        "import sys; from pathlib import Path; from mlxchat.cache.kept import KeptFile\n"
        "KeptFile(Path(sys.argv[1]), bytes.fromhex(Path(sys.argv[1]).stem))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code, str(file_of(tmp_path))]
    beside = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "KeptBusy" in beside.stderr
    first.close()
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
    assert found(open_store()) == [0, 1, 2, 3, 4, 5]


# -- damage ----------------------------------------------------------------------------------------------------


def spoil(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("what", "at", "data", "left", "damaged"),
    [
        ("the magic", 0, b"\0", [0, 1, 3, 4, 5], 0),
        ("an older version", 8, struct.pack("<I", 1), [0, 1, 3, 4, 5], 1),
        ("the length", 16, struct.pack("<Q", 1 << 50), [0, 1, 3, 4, 5], 1),
        ("an id", 130, b"\xff", [0, 1, 3, 4, 5], 1),
        ("the namespace", 60, b"\xff\xfe", [0, 1, 3, 4, 5], 1),
        ("the checksum", 24, b"\xff\xfe\xfd\xfc", [0, 1, 3, 4, 5], 0),
        ("a tensor", ONE - 3, b"\xff", [0, 1, 3, 4, 5], 0),
    ],
)
def test_damage_costs_its_record(
    open_store: Opener, tmp_path: Path, what: str, at: int, data: bytes, left: list[int], damaged: int
) -> None:
    first = open_store()
    fill(first)
    first.close()
    spoil(file_of(tmp_path), 2 * ONE + at, data)
    second = open_store()
    assert second.stats().damaged == damaged, what
    assert found(second) == left
    fill(second)
    assert found(second) == [0, 1, 2, 3, 4, 5]
    assert second.stats().file_bytes == 6 * ONE


def test_planted_without_the_heads_checksum_an_id_that_flipped_is_believed(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_store()
    fill(first)
    first.close()
    spoil(file_of(tmp_path), 2 * ONE + 130, b"\xff")
    stored = lambda head: struct.unpack_from("<I", head, 120)[0]  # noqa: E731
    monkeypatch.setattr("mlxchat.cache.records._head_checksum", stored)
    assert open_store().stats().damaged == 0


@pytest.mark.parametrize("cut", [1, ONE - 130, ONE - 1])
def test_a_file_that_was_cut_off(open_store: Opener, tmp_path: Path, cut: int) -> None:
    first = open_store()
    fill(first)
    first.close()
    os.truncate(file_of(tmp_path), 6 * ONE - cut)
    second = open_store()
    assert found(second) == [0, 1, 2, 3, 4]


def test_swapped_records_are_found_where_they_belong(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first)
    first.close()
    data = file_of(tmp_path).read_bytes()
    spoil(file_of(tmp_path), 0, data[ONE : 2 * ONE] + data[:ONE])
    assert found(open_store()) == [0, 1, 2, 3, 4, 5]


def test_two_records_of_the_same_are_one(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first)
    first.close()
    with file_of(tmp_path).open("r+b") as file:
        once = file.read(ONE)
        file.seek(0, os.SEEK_END)
        file.write(once)
    second = open_store()
    assert found(second) == [0, 1, 2, 3, 4, 5]
    assert second.stats().file_bytes == 6 * ONE


def test_other_weights_find_nothing_and_disturb_nothing(open_store: Opener) -> None:
    first = open_store()
    fill(first)
    first.close()
    other = open_store(namespace_key({"weights": "others"}))
    assert len(other._index) == 0
    other.close()
    assert found(open_store()) == [0, 1, 2, 3, 4, 5]


def test_garbage_of_any_kind(open_store: Opener, tmp_path: Path) -> None:
    path = file_of(tmp_path)
    path.parent.mkdir()
    path.write_bytes(random_ids(3_000_00).tobytes() + b"\x89MLXKV\r\n" * 1000 + b"\x89MLX")
    store = open_store()
    assert store.stats().damaged == 1000
    assert store.stats().file_bytes == 0
    fill(store)
    assert found(store) == [0, 1, 2, 3, 4, 5]


WRITER = """
import sys
from pathlib import Path
from mlxchat.cache.kept import KeptFile
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from support.kvstore import NAMESPACE, MIB, Line, put, random_ids
kept = KeptFile.of(Path(sys.argv[1]), NAMESPACE, "a model")
store = Store(Path(sys.argv[1]), NAMESPACE, 2 * MIB, MIB, print, kept=kept)
store.check()
lines = [Line(random_ids(40 * BLOCK, seed=seed)) for seed in range(3)]
print("ready", flush=True)
while True:
    for line in lines:
        for n, place in enumerate(line.blocks(), 1):
            put(store, place, n * BLOCK, floats=[64, 3000, 9000][n % 3], wait=True, user="u")
            store.forget(place, "global") if n % 5 == 0 else None
        store.leave("u") if len(line.ids) % 2 else None
"""


def kill_while_writing(folder: Path, times: int) -> None:
    """Each program opens what the one before left when it was killed; every record found is read and right."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    lines = [Line(random_ids(40 * BLOCK, seed=seed)) for seed in range(3)]
    records = 0
    for number in range(times):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.037 * (number % 7))
        writer.kill()
        writer.wait(10)
        writer.stdout.close()
        store = Store(folder, NAMESPACE, 2 * MIB, MIB, print, kept=KeptFile.of(folder, NAMESPACE, ""))
        store.check()
        stats = store.stats()
        assert stats.damaged == 0
        assert stats.file_bytes <= 2 * MIB
        entries = list(store._index)
        assert read_back(store, entries) == (sorted(entries, key=lambda entry: entry.extent), [])  # type: ignore[arg-type,return-value]
        records += sum(store.contains(place, "global") for line in lines for place in line.blocks())
        store.close()
    assert records > times


def test_a_kill_at_any_moment_leaves_whole_records(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, 3)


@pytest.mark.slow
def test_many_kills_leave_whole_records(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, 60)


def test_planted_a_head_written_first_is_believed_though_its_rows_never_came(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that stops in the middle: with the head last nothing is there, with the head first a torn record is."""

    def torn(first: bool) -> int:
        files = FaultyFiles()
        namespace = namespace_key({"head first": str(first)})
        store = open_store(namespace, files=files)
        files.most_at_once, files.write_room = 256, 1024
        place = LINE.place(BLOCK)
        tensors = specs(600)
        store.submit(place, "global", BLOCK, 0, tensors, payload(place, "global", tensors), wait=True)
        store.drain(10)
        files.write_room = None
        return file_of(tmp_path, namespace).read_bytes().count(b"\x89MLXKV\r\n")

    assert torn(first=False) == 0
    fill_at = ScratchFile._fill
    monkeypatch.setattr(ScratchFile, "free", lambda self, extent: None)
    monkeypatch.setattr(
        ScratchFile,
        "write",
        lambda self, extent, buffers: fill_at(self, extent.offset, [memoryview(b).cast("B") for b in buffers]),
    )
    assert torn(first=True) == 1


# -- room, age, deletion ---------------------------------------------------------------------------------------


def test_a_smaller_budget_evicts_what_was_needed_longest_ago(open_store: Opener) -> None:
    first = open_store()
    fill(first, last=3)
    fill(first, OTHER, last=3)
    first.touch([LINE.place(3 * BLOCK)])
    first.close()
    second = open_store(budget=4 * ONE)
    assert found(second) == [0, 1, 2]
    assert found(second, OTHER) == [0]
    assert second.stats().file_bytes <= 4 * ONE


def test_what_expired_is_gone_in_the_next_program(open_store: Opener) -> None:
    clock = [1000.0]
    first = open_store(now=lambda: clock[0])
    fill(first, OTHER, last=4)
    clock[0] = 2000.0
    fill(first)
    first.close()
    clock[0] = 2500.0
    second = open_store(now=lambda: clock[0])
    assert second.expire(1000) == 4
    assert (found(second), found(second, OTHER)) == ([0, 1, 2, 3, 4, 5], [])
    assert second.stats().expired == 4
    second.close()
    assert found(open_store(), OTHER) == []


def words(line: Line, last: int) -> list[bytes]:
    """Bytes that only the records of these blocks hold."""
    return [bytes(payload(line.place(n * BLOCK), "global", specs())[0][:32]) for n in range(1, last + 1)]


def test_a_deleted_conversation_is_erased_and_stays_so(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first, user="a")
    fill(first, OTHER, user="b", last=4)
    put(first, LINE.place(BLOCK), BLOCK, user="b")
    assert first.leave("a") == 5
    data = file_of(tmp_path).read_bytes()
    assert [word in data for word in words(LINE, 6)] == [True] + [False] * 5
    assert [word in data for word in words(OTHER, 4)] == [True] * 4
    first.close()
    second = open_store()
    assert (found(second), found(second, OTHER)) == ([0], [0, 1, 2, 3])
    assert entry_at(second, LINE.place(BLOCK)).users == {"b"}


def test_what_is_pinned_or_being_written_when_its_conversation_is_deleted_is_erased_later(
    open_store: Opener, tmp_path: Path
) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    fill(store, user="a", last=2)
    fill(store, OTHER, user="b", last=2)
    pinned = entry_at(store, LINE.place(BLOCK))
    store.pin([pinned])
    files.arrived.clear()
    files.gate.clear()
    put(store, LINE.place(3 * BLOCK), 3 * BLOCK, user="a")
    assert files.arrived.wait(10)
    gate = threading.Timer(0.2, files.gate.set)
    gate.start()
    store.leave("a")
    assert store.drain(10)
    gate.join()
    assert read_back(store, [pinned]) == ([pinned], [])
    store.unpin([pinned])
    data = file_of(tmp_path).read_bytes()
    assert not any(word in data for word in words(LINE, 3))
    assert found(store, OTHER) == [0, 1]


def test_planted_without_erasing_its_bytes_are_still_there(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScratchFile, "erase", lambda self, extent: None)
    with pytest.raises(AssertionError):
        test_a_deleted_conversation_is_erased_and_stays_so(open_store, tmp_path)


def test_a_conversation_is_deleted_while_no_program_has_the_file(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first, user="a")
    fill(first, OTHER, user="b", last=4)
    first.close()
    assert kept_folder.forget(tmp_path / "kv", "a") == 6
    assert not any(word in file_of(tmp_path).read_bytes() for word in words(LINE, 6))
    second = open_store()
    assert (found(second), found(second, OTHER)) == ([], [0, 1, 2, 3])
    second.close()
    assert kept_folder.forget(tmp_path / "kv", "b") == 4
    assert list((tmp_path / "kv").iterdir()) == []


def test_a_conversation_is_deleted_while_another_program_has_the_file(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first, user="a")
    fill(first, OTHER, user="b", last=4)
    assert kept_folder.forget(tmp_path / "kv", "a") == 0
    assert kept_folder.forget(tmp_path / "kv", "no name/../x") == 0
    first.keep_notes()
    assert (found(first), found(first, OTHER)) == ([], [0, 1, 2, 3])
    assert sorted(path.suffix for path in (tmp_path / "kv").iterdir()) == [".json", ".kv"]


def test_a_mark_that_can_not_be_taken_away_is_obeyed_all_the_same(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes are kept before an answer is delivered: a folder that has become read-only must not cost it."""

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise io_error(errno.EROFS)

    first = open_store()
    fill(first, user="a")
    kept_folder.forget(tmp_path / "kv", "a")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        first.keep_notes()
        assert found(first) == []
        first.close()


def test_a_mark_left_when_the_program_was_killed_counts_at_the_next_start(open_store: Opener, tmp_path: Path) -> None:
    first = open_store()
    fill(first, user="a")
    kept_folder.forget(tmp_path / "kv", "a")
    first._keeping = None  # it dies before its turn ends
    first._scratch.close()
    assert found(open_store()) == []


def test_a_record_that_can_not_be_blanked_takes_the_file_along(open_store: Opener, tmp_path: Path) -> None:
    files = FaultyFiles()
    first = open_store(files=files)
    fill(first, user="a")
    files.write_error = io_error(errno.EROFS)
    assert first.leave("a") == 6
    first.close()
    assert not file_of(tmp_path).exists()


def test_old_files_of_other_models_make_room(open_store: Opener, tmp_path: Path) -> None:
    others = [namespace_key({"weights": str(n)}) for n in range(4)]
    for n, namespace in enumerate(others):
        line = Line(LINE.ids, namespace)
        store = open_store(namespace)
        fill(store, line)
        store.close()
        for path in (file_of(tmp_path, namespace), file_of(tmp_path, namespace).with_suffix(".json")):
            os.utime(path, (1000.0 + n, 1000.0 + n))
    busy = open_store(others[0])
    own, folder = file_of(tmp_path), tmp_path / "kv"
    assert kept_folder.make_room(folder, own, 100 * ONE, None) == 76 * ONE
    assert kept_folder.make_room(folder, own, 30 * ONE, None) == 30 * ONE - 12 * ONE
    assert file_of(tmp_path, others[0]).exists(), "in use"
    assert [file_of(tmp_path, one).exists() for one in others[1:]] == [False, False, True]
    assert kept_folder.make_room(folder, own, 100 * ONE, 3600.0) == 94 * ONE, "idle for longer than its time to live"
    [info] = map(kept_folder.describe, kept_folder.kept_files(folder))
    assert (info.label, info.nbytes, info.is_open) == ("a model", 6 * ONE, True)
    busy.close()
    assert not kept_folder.describe(info.path).is_open
