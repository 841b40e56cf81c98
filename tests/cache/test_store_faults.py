"""A disk that fails in every way there is: the record is lost, said once, and never a wrong byte comes back."""

from __future__ import annotations

import errno
import shutil
import threading

import pytest
from mlxchat.cache import reader as reader_module
from mlxchat.cache.keys import BLOCK, namespace_key
from mlxchat.cache.records import RecordHeader, decode, encode
from mlxchat.cache.store import Store
from mlxchat.cache.writer import FIRST_COOL_DOWN_S, LONGEST_COOL_DOWN_S
from support.kvstore import (
    MIB,
    NAMESPACE,
    Clock,
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

pytestmark = pytest.mark.exact

ONE = record_bytes()
LINE = Line(random_ids(8 * BLOCK))


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, files, said, clock):
    store = Store(tmp_path / "kv", NAMESPACE, MIB, MIB, said.append, files, clock)
    yield store
    files.gate.set()
    store.check()
    store.close()


def put_block(store: Store, n: int) -> str:
    answer = put(store, LINE.place(n * BLOCK), n * BLOCK, wait=True)
    assert store.drain(10)
    return answer


def entries_of(store: Store, *blocks: int):
    return [entry_at(store, LINE.place(n * BLOCK)) for n in blocks]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ENODEV, errno.EROFS])
def test_a_failed_write_costs_its_record_and_is_said_once(store, files, said, clock, number):
    put_block(store, 1)
    files.write_error = io_error(number)
    assert put_block(store, 2) == "queued"
    assert not store.contains(LINE.place(2 * BLOCK), "global")
    assert store.stats().file_bytes == ONE
    store.check()
    clock.now += FIRST_COOL_DOWN_S
    put_block(store, 2)
    assert len(said) == 1
    assert "can't write" in said[0]
    assert store.stats().dropped == {"write_error": 2}
    assert store.stats().errors == 2
    assert read_back(store, entries_of(store, 1))[1] == []


@pytest.mark.parametrize("room", [0, 1, 200, ONE - 1])
def test_a_disk_that_fills_up_inside_a_record(store, files, said, clock, room):
    put_block(store, 1)
    files.write_room = room
    put_block(store, 2)
    assert not store.contains(LINE.place(2 * BLOCK), "global")
    assert store.stats().file_bytes == ONE
    store.check()
    files.write_room = None
    clock.now += FIRST_COOL_DOWN_S
    put_block(store, 2)
    assert len(read_back(store, entries_of(store, 1, 2))[0]) == 2
    assert len(said) == 1


def test_a_file_that_can_not_grow_is_a_failed_write(store, files, said):
    files.truncate_error = io_error(errno.EFBIG)
    put_block(store, 1)
    files.truncate_error = None
    assert store.stats().dropped == {"write_error": 1}
    assert len(said) == 1


def test_the_disk_is_left_alone_for_longer_and_longer(store, files, clock):
    files.write_error = io_error()
    expected, waits = FIRST_COOL_DOWN_S, []
    for _ in range(7):
        assert put_block(store, 1) == "queued"
        assert not store.accepts
        assert put_block(store, 1) == "off"
        clock.now += expected - 1
        assert put_block(store, 1) == "off"
        clock.now += 1
        assert store.accepts
        waits.append(expected)
        expected = min(2 * expected, LONGEST_COOL_DOWN_S)
    assert waits[0] == FIRST_COOL_DOWN_S
    assert waits[-1] == LONGEST_COOL_DOWN_S
    files.write_error = None
    assert put_block(store, 1) == "queued"
    assert store.contains(LINE.place(BLOCK), "global")
    files.write_error = io_error()
    put_block(store, 2)
    clock.now += FIRST_COOL_DOWN_S
    assert store.accepts


def test_what_waits_behind_a_failed_write_is_let_go(store, files, said):
    files.gate.clear()
    for n in range(1, 6):
        put(store, LINE.place(n * BLOCK), n * BLOCK)
    files.write_error = io_error()
    files.gate.set()
    assert store.drain(10)
    stats = store.stats()
    assert (stats.records, stats.queue_bytes, stats.file_bytes) == (0, 0, 0)
    assert stats.dropped == {"write_error": 1, "cooling": 4}
    assert len(said) == 1


def test_whoever_waits_for_room_is_told_when_the_disk_fails(tmp_path, files, said, clock):
    store = Store(tmp_path, NAMESPACE, MIB, 2 * ONE, said.append, files, clock)
    files.gate.clear()
    for n in (1, 2):
        put(store, LINE.place(n * BLOCK), n * BLOCK)
    done = []
    waiting = threading.Thread(target=lambda: done.append(put(store, LINE.place(768), 768, wait=True)))
    waiting.start()
    files.write_error = io_error()
    files.gate.set()
    waiting.join(10)
    assert done == ["off"]
    store.check()
    store.close()


def test_a_planned_record_whose_write_fails_can_still_be_read_while_pinned(store, files):
    files.gate.clear()
    put(store, LINE.place(BLOCK), BLOCK)
    (entry,) = entries_of(store, 1)
    with store.pinned([entry]):
        files.write_error = io_error()
        files.gate.set()
        assert store.drain(10)
        assert not store.contains(LINE.place(BLOCK), "global")
        assert read_back(store, [entry]) == ([entry], [])
        store.check()
    assert entry.payload is None
    assert read_back(store, [entry]) == ([], [entry])


@pytest.mark.parametrize("crash", [ZeroDivisionError("x"), MemoryError(), KeyboardInterrupt()])
def test_a_writer_that_dies_is_noticed_at_the_next_submit_and_said_once(store, files, said, crash):
    put_block(store, 1)
    files.gate.clear()
    for n in (2, 3):
        put(store, LINE.place(n * BLOCK), n * BLOCK)
    files.write_crash = crash
    files.gate.set()
    assert not store.drain(10)
    store.check()
    assert said == []
    assert put(store, LINE.place(4 * BLOCK), 4 * BLOCK, wait=True) == "off"
    assert put(store, LINE.place(4 * BLOCK), 4 * BLOCK) == "off"
    assert len(said) == 1
    assert "writer stopped" in said[0]
    assert not store.accepts
    stats = store.stats()
    assert (stats.records, stats.queue_bytes, stats.file_bytes) == (1, 0, ONE)
    assert read_back(store, entries_of(store, 1))[1] == []


def test_a_reader_that_is_gone_is_a_miss(store, said):
    put_block(store, 1)
    assert store._reader.close(10)
    entries = entries_of(store, 1)
    assert read_back(store, entries) == ([], entries)
    assert len(said) == 1


def test_a_bad_spot_costs_one_record_of_those_read_together(store, files, said, monkeypatch):
    for n in range(1, 6):
        put_block(store, n)
    entries = entries_of(store, 1, 2, 3, 4, 5)
    spot = entries[2].extent
    real = FaultyFiles.preadv

    def bad_spot(self, descriptor, buffers, offset):
        if offset < spot.end and offset + sum(buffer.nbytes for buffer in buffers) > spot.offset:
            raise io_error()
        return real(self, descriptor, buffers, offset)

    monkeypatch.setattr(FaultyFiles, "preadv", bad_spot)
    came, failed = read_back(store, entries)
    assert (len(came), failed) == (4, [entries[2]])
    assert [store.contains(LINE.place(n * BLOCK), "global") for n in range(1, 6)] == [True, True, False, True, True]
    assert store.stats().dropped == {"read_error": 1}
    assert len(said) == 1
    store.check()


def test_a_disk_that_is_gone_is_all_misses_said_once(store, files, said):
    for n in range(1, 4):
        put_block(store, n)
    entries = entries_of(store, 1, 2, 3)
    files.read_error = files.write_error = files.truncate_error = io_error(errno.ENODEV)
    assert read_back(store, entries)[1] == entries
    assert store.stats().records == 0
    store.check()
    put_block(store, 4)
    assert len(said) == 2
    files.truncate_error = None


def test_a_file_that_ends_too_early_is_a_miss(store, files):
    for n in range(1, 4):
        put_block(store, n)
    files.end_at = 2 * ONE + 5
    entries = entries_of(store, 1, 2, 3)
    came, failed = read_back(store, entries)
    assert (len(came), failed) == (2, [entries[2]])


def _overwrite(store: Store, offset: int, data: bytes) -> None:
    store._scratch._files.pwritev(store._scratch._descriptor, [memoryview(data)], offset)


def _raw(store: Store, entry) -> bytes:
    out = bytearray(entry.extent.length)
    store._scratch.read_into(entry.extent.offset, memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("at", [0, 9, 30, 60, 100, 130, 1200, 1400, ONE - 300, ONE - 1])
def test_one_flipped_byte_is_a_miss(store, said, at):
    for n in (1, 2, 3):
        put_block(store, n)
    entries = entries_of(store, 1, 2, 3)
    raw = bytearray(_raw(store, entries[1]))
    raw[at] ^= 0x40
    _overwrite(store, entries[1].extent.offset, raw)
    came, failed = read_back(store, entries)
    assert (len(came), failed) == (2, [entries[1]])
    assert store.stats().dropped == {"bad_record": 1}
    assert len(said) == 1
    assert put_block(store, 2) == "queued"
    assert len(read_back(store, entries_of(store, 1, 2, 3))[0]) == 3


def test_planted_fault_without_verification_the_flip_would_reach_the_sink(store, monkeypatch):
    put_block(store, 1)
    (entry,) = entries_of(store, 1)
    raw = bytearray(_raw(store, entry))
    raw[-1] ^= 1
    _overwrite(store, entry.extent.offset, raw)
    start = entry.nbytes - entry.header.payload_bytes

    def trusting(entry, record):
        return {"0.keys": record[start : start + 256], "0.values": record[start + 256 :]}

    monkeypatch.setattr(reader_module, "verified", trusting)
    with pytest.raises(AssertionError):
        read_back(store, [entry])


def test_swapped_records_are_misses(store):
    for n in (1, 2, 3):
        put_block(store, n)
    entries = entries_of(store, 1, 2, 3)
    first, second = _raw(store, entries[0]), _raw(store, entries[1])
    _overwrite(store, entries[0].extent.offset, second)
    _overwrite(store, entries[1].extent.offset, first)
    assert read_back(store, entries) == ([entries[2]], entries[:2])


def _alien(change: str) -> bytes:
    """A whole and valid record of the right length that is not the one of block 1."""
    place, tensors = LINE.place(BLOCK), specs()
    namespace, group, position, row_start = NAMESPACE, "global", BLOCK, 0
    data = payload(place, group, tensors)
    if change == "namespace":
        namespace = namespace_key({"weights": "others"})
    elif change == "group":
        group = "global"[::-1]
    elif change == "place":
        place = Line(random_ids(BLOCK, seed=77)).place(BLOCK)
    elif change == "position":
        position += BLOCK
    elif change == "rows":
        row_start += 1
    elif change == "tensors":
        tensors = tensors[::-1]
    elif change == "content":
        data = data[::-1]
    return b"".join(encode(RecordHeader(namespace, group, place, position, row_start, tensors), data))


@pytest.mark.parametrize("change", ["namespace", "group", "place", "position", "rows", "tensors", "content"])
def test_another_valid_record_in_its_place_is_a_miss(store, change):
    put_block(store, 1)
    (entry,) = entries_of(store, 1)
    alien = _alien(change)
    assert len(alien) == entry.nbytes
    decode(memoryview(alien))
    _overwrite(store, entry.extent.offset, alien)
    assert read_back(store, [entry]) == ([], [entry])


def test_the_unchanged_record_in_its_place_is_a_hit(store):
    put_block(store, 1)
    (entry,) = entries_of(store, 1)
    _overwrite(store, entry.extent.offset, _alien("nothing"))
    assert read_back(store, [entry]) == ([entry], [])


def test_records_of_another_namespace_are_not_found(tmp_path, store):
    put_block(store, 1)
    others = Store(tmp_path / "kv", namespace_key({"weights": "others"}), MIB, MIB, print)
    line = Line(LINE.ids, others.namespace)
    assert others.block(line.keys[0], LINE.ids[:BLOCK]) is None
    assert store.block(line.keys[0], LINE.ids[:BLOCK]) is None
    others.close()


def test_a_directory_that_vanishes_takes_nothing_along(tmp_path, store, said):
    put_block(store, 1)
    shutil.rmtree(tmp_path / "kv")
    put_block(store, 2)
    assert len(read_back(store, entries_of(store, 1, 2))[0]) == 2
    assert said == []
