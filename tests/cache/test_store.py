from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from mlxchat.cache.keys import BLOCK, Place
from mlxchat.cache.reader import RUN_BYTES
from mlxchat.cache.store import Store
from mlxchat.errors import CacheTrouble
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

pytestmark = pytest.mark.exact

ONE = record_bytes()
LINE = Line(random_ids(12 * BLOCK + 40))


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, files, said):
    stores = []

    def make(budget: int = MIB, queue: int = MIB) -> Store:
        stores.append(Store(tmp_path / "kv", NAMESPACE, budget, queue, said.append, files))
        return stores[-1]

    yield make
    files.gate.set()
    for store in stores:
        store.close()
    assert not said


def put_blocks(store: Store, line: Line, first: int = 0, last: int | None = None) -> list[Place]:
    places = line.blocks()[first:last]
    for n, place in enumerate(places, first + 1):
        assert put(store, place, n * BLOCK, wait=True) == "queued"
    return places


def test_records_come_back_from_the_queue_and_from_the_file(make, files):
    store = make()
    files.gate.clear()
    places = put_blocks(store, LINE)
    entries = [entry_at(store, place) for place in places]
    assert all(entry.payload is not None for entry in entries)
    assert read_back(store, entries) == (entries, [])
    store.check()
    files.gate.set()
    assert store.drain(10)
    assert all(entry.payload is None for entry in entries)
    assert files.reads == 0
    assert sorted(map(id, read_back(store, entries)[0])) == sorted(map(id, entries))
    assert files.reads == 1
    stats = store.stats()
    assert (stats.writes, stats.records, stats.queue_bytes) == (12, 12, 0)
    assert stats.bytes_written == stats.bytes_read == stats.file_bytes == stats.record_bytes == 12 * ONE
    store.check()


def test_the_host_memory_of_a_written_record_is_let_go(make):
    store = make()
    place = LINE.place(BLOCK)
    held = np.zeros(64, dtype=np.float32)
    gone = weakref.ref(held)
    store.submit(place, "g", BLOCK, 0, specs(), [memoryview(held), memoryview(bytes(256))], wait=True)
    del held
    assert store.drain(10)
    gc.collect()
    assert gone() is None


def test_lookup_compares_ids_and_measures_what_is_equal(make):
    store = make()
    put_blocks(store, LINE)
    put(store, LINE.place(BLOCK + 40), BLOCK + 40, "state")
    ids = LINE.ids[BLOCK : 2 * BLOCK].copy()
    matches = {match.length: match for match in store.lookup(LINE.keys[1], ids)}
    assert {length: match.equal for length, match in matches.items()} == {256: 256, 40: 40}
    assert all(match.is_whole for match in matches.values())
    assert set(matches[40].groups) == {"state"}
    assert matches[256].place == LINE.place(2 * BLOCK)
    ids[30] += 1
    matches = {match.length: match for match in store.lookup(LINE.keys[1], ids)}
    assert {length: match.equal for length, match in matches.items()} == {256: 30, 40: 30}
    assert not any(match.is_whole for match in matches.values())
    ids[0] += 1
    assert store.lookup(LINE.keys[1], ids) == []
    assert store.lookup(bytes(32), ids) == []
    assert [match.equal for match in store.lookup(LINE.keys[0], LINE.ids[:3])] == [3]


def test_block_finds_exactly_these_ids(make):
    store = make()
    put_blocks(store, LINE)
    ids = LINE.ids[BLOCK : 2 * BLOCK].copy()
    match = store.block(LINE.keys[1], ids)
    assert match is not None
    assert match.place == LINE.place(2 * BLOCK)
    ids[255] += 1
    assert store.block(LINE.keys[1], ids) is None
    assert store.block(LINE.keys[2], LINE.ids[BLOCK : 2 * BLOCK]) is None


def test_a_record_that_is_there_is_not_taken_again(make):
    store = make()
    place = LINE.place(BLOCK)
    assert put(store, place, BLOCK) == "queued"
    assert put(store, place, BLOCK) == "present"
    assert store.drain(10)
    assert put(store, place, BLOCK) == "present"
    assert put(store, place, BLOCK, "local:512") == "queued"
    assert store.contains(place, "global")
    assert store.contains(place, "local:512")
    assert not store.contains(place, "state")
    assert store.drain(10)
    assert store.stats().writes == 2


def test_a_record_with_more_rows_takes_the_place_of_one_with_fewer(make):
    store = make()
    place = LINE.place(BLOCK)
    data = payload(place, "g", specs())
    assert store.submit(place, "g", BLOCK, 200, specs(), data, wait=True) == "queued"
    assert store.submit(place, "g", BLOCK, 210, specs(), data, wait=True) == "present"
    assert store.submit(place, "g", BLOCK, 100, specs(), data, wait=True) == "queued"
    assert store.drain(10)
    assert entry_at(store, place, "g").header.row_start == 100
    assert store.stats().records == 1
    store.check()


def test_sizes_that_contradict_the_header_are_the_callers_fault(make):
    store = make()
    place = LINE.place(BLOCK)
    with pytest.raises(ValueError, match="payload"):
        store.submit(place, "g", BLOCK, 0, specs(), [memoryview(b"1234")], wait=True)
    with pytest.raises(ValueError, match="position"):
        store.submit(place, "g", BLOCK + 1, 0, specs(), payload(place, "g", specs()), wait=True)
    store.check()


def test_the_file_never_outgrows_its_budget_and_evicts_the_suffix_first(make):
    store = make(budget=5 * ONE + ONE // 2)
    old = put_blocks(store, LINE, last=5)
    assert store.drain(10)
    other = Line(random_ids(2 * BLOCK, seed=3))
    put_blocks(store, other)
    assert store.drain(10)
    assert [store.contains(place, "global") for place in old] == [True, True, True, False, False]
    stats = store.stats()
    assert (stats.evictions, stats.file_bytes_peak) == (2, 5 * ONE)
    store.check()


def test_a_record_never_evicts_the_chain_it_stands_on(make):
    store = make(budget=4 * ONE)
    put_blocks(store, LINE)
    assert store.drain(10)
    kept = [store.contains(place, "global") for place in LINE.blocks()]
    assert kept == [True] * 4 + [False] * 8
    assert store.stats().dropped == {"no_room": 8}
    store.check()


def test_planted_fault_without_the_spared_chain_it_does(make, monkeypatch):
    monkeypatch.setattr("mlxchat.cache.order.Order.needed", lambda self, place: iter(()))
    store = make(budget=4 * ONE)
    put_blocks(store, LINE)
    assert store.drain(10)
    assert [store.contains(place, "global") for place in LINE.blocks()] != [True] * 4 + [False] * 8


def test_a_record_that_can_not_fit_beside_pinned_ones_evicts_nothing(make):
    store = make(budget=6 * ONE)
    places = put_blocks(store, LINE, last=6)
    assert store.drain(10)
    pinned = [entry_at(store, places[n]) for n in (1, 4)]
    with store.pinned(pinned):
        other = Line(random_ids(BLOCK, seed=3)).place(BLOCK)
        # The gaps between pinned records are 1, 2 and 1 records wide.
        assert put(store, other, BLOCK, floats=64 + 128 * 5, wait=True) == "queued"
        assert store.drain(10)
        assert not store.contains(other, "global")
        assert store.stats().evictions == 0
        assert store.stats().dropped == {"no_room": 1}
    assert put(store, other, BLOCK, floats=64 + 128 * 5, wait=True) == "queued"
    assert store.drain(10)
    assert store.contains(other, "global")
    store.check()


def test_fragments_are_joined_by_evicting_more(make):
    store = make(budget=8 * ONE)
    places = put_blocks(store, LINE, last=8)
    assert store.drain(10)
    for place in places[1::2]:
        store.forget(place, "global")
    store.check()
    other = Line(random_ids(BLOCK, seed=3)).place(BLOCK)
    put(store, other, BLOCK, floats=500, wait=True)
    assert store.drain(10)
    assert store.contains(other, "global")
    assert 1 <= store.stats().evictions <= 4
    store.check()


def test_demoted_records_and_what_follows_them_go_first(make):
    store = make(budget=8 * ONE)
    other = Line(random_ids(3 * BLOCK, seed=3))
    old = put_blocks(store, other)
    put_blocks(store, LINE, last=5)
    assert store.drain(10)
    store.demote([LINE.place(4 * BLOCK)])
    third = Line(random_ids(3 * BLOCK, seed=4))
    put_blocks(store, third, last=2)
    assert store.drain(10)
    assert [store.contains(place, "global") for place in LINE.blocks()[:5]] == [True, True, True, False, False]
    assert all(store.contains(place, "global") for place in old)
    put_blocks(store, third, first=2)
    assert store.drain(10)
    assert [store.contains(place, "global") for place in old] == [True, True, False]


def test_touched_records_go_last(make):
    store = make(budget=4 * ONE)
    lines = [Line(random_ids(BLOCK, seed=seed)) for seed in range(6)]
    for line in lines[:4]:
        put_blocks(store, line)
    assert store.drain(10)
    store.touch([lines[0].place(BLOCK)])
    put_blocks(store, lines[4])
    put(store, lines[1].place(BLOCK), BLOCK, wait=True)
    assert store.drain(10)
    assert [store.contains(line.place(BLOCK), "global") for line in lines] == [True, True, False, True, True, False]


def test_pinned_records_are_never_evicted_and_forgotten_ones_keep_their_bytes_while_pinned(make):
    store = make(budget=3 * ONE)
    lines = [Line(random_ids(BLOCK, seed=seed)) for seed in range(9)]
    put_blocks(store, lines[0])
    assert store.drain(10)
    entry = entry_at(store, lines[0].place(BLOCK))
    store.pin([entry])
    store.pin([entry])
    for line in lines[1:5]:
        put_blocks(store, line)
    assert store.drain(10)
    assert store.forget(lines[0].place(BLOCK), "global")
    assert not store.forget(lines[0].place(BLOCK), "global")
    for line in lines[5:]:
        put_blocks(store, line)
    assert store.drain(10)
    store.check()
    assert read_back(store, [entry]) == ([entry], [])
    store.unpin([entry])
    assert read_back(store, [entry]) == ([entry], [])
    assert store.stats().pins == 1
    store.unpin([entry])
    store.check()
    assert store.stats().pins == 0
    assert store.stats().file_bytes == 3 * ONE or store.stats().free_extents == 1


def test_free_space_at_the_end_is_given_back(make, files):
    store = make()
    places = put_blocks(store, LINE)
    assert store.drain(10)
    for place in reversed(places[3:]):
        store.forget(place, "global")
    assert store.stats().file_bytes == 3 * ONE
    assert store.shrink(2 * ONE) == 2 * ONE
    assert [store.contains(place, "global") for place in places[:3]] == [True, True, False]
    store.check()
    files.truncate_error = io_error()
    assert store.shrink(0) == 2 * ONE
    files.truncate_error = None
    assert store.shrink(0) == 0
    store.check()


def test_decode_never_waits_and_prefill_does(make, files):
    store = make(queue=2 * ONE)
    files.gate.clear()
    put_blocks(store, LINE, last=2)
    start = time.monotonic()
    assert put(store, LINE.place(3 * BLOCK), 3 * BLOCK) == "full"
    assert time.monotonic() - start < 1
    assert store.stats().dropped == {"full": 1}
    done = []
    waiting = threading.Thread(target=lambda: done.append(put(store, LINE.place(3 * BLOCK), 3 * BLOCK, wait=True)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    # Waiting lets the lock go: others may look things up.
    assert store.contains(LINE.place(BLOCK), "global")
    files.gate.set()
    waiting.join(10)
    assert done == ["queued"]
    assert store.drain(10)
    assert store.stats().writes == 3


def test_waiting_records_of_lower_priority_make_room(make, files):
    store = make(queue=4 * ONE)
    files.gate.clear()
    line = Line(random_ids(9 * BLOCK, seed=2))
    places = line.blocks()

    def submit(n: int, priority: int) -> str:
        return put(store, places[n], (n + 1) * BLOCK, priority=priority)

    assert submit(0, 0) == "queued"
    assert files.arrived.wait(10)
    assert [submit(n, priority) for n, priority in ((1, 1), (2, 0), (3, 0))] == ["queued"] * 3
    assert submit(4, 0) == "full"
    store.pin([entry_at(store, places[2])])
    assert submit(5, 2) == "queued"
    # The one being written and the pinned one stay; the lowest of the others went.
    assert [store.contains(place, "global") for place in places[:6]] == [True, True, True, False, False, True]
    assert submit(6, 1) == "full"
    assert submit(7, 2) == "queued"
    assert not store.contains(places[1], "global")
    store.check()
    store.unpin([entry_at(store, places[2])])
    files.gate.set()
    assert store.drain(10)
    assert store.stats().dropped == {"full": 2, "displaced": 2}
    store.check()


def test_what_is_too_large_is_skipped_with_a_reason(make):
    store = make(queue=4 * ONE, budget=MIB)
    assert put(store, LINE.place(BLOCK), BLOCK, floats=4096, wait=True) == "too_large"
    store = make(queue=MIB, budget=4 * ONE)
    assert put(store, LINE.place(BLOCK), BLOCK, floats=4096, wait=True) == "too_large"
    assert store.stats().dropped == {"too_large": 1}
    store.check()


def test_a_record_forgotten_while_it_waits_is_not_written(make, files):
    store = make()
    files.gate.clear()
    places = put_blocks(store, LINE, last=3)
    assert files.arrived.wait(10)
    for place in places:
        store.forget(place, "global")
    store.check()
    files.gate.set()
    assert store.drain(10)
    stats = store.stats()
    assert (stats.records, stats.file_bytes) == (0, 0)
    store.check()


def test_neighbours_come_in_large_reads_and_records_larger_than_those_alone(make, files):
    store = make(budget=128 * MIB, queue=128 * MIB)
    floats = MIB // 2
    places = LINE.blocks()[:6]
    for n, place in enumerate(places, 1):
        put(store, place, n * BLOCK, floats=floats, wait=True)
    large = Line(random_ids(BLOCK, seed=8)).place(BLOCK)
    put(store, large, BLOCK, floats=3 * MIB, wait=True)
    assert store.drain(30)
    entries = [entry_at(store, place) for place in (*places, large)]
    assert entries[-1].nbytes > RUN_BYTES > 3 * entries[0].nbytes
    came, failed = read_back(store, entries)
    assert (len(came), failed) == (7, [])
    assert files.reads == 2 + 3  # two runs of neighbours; the large one's head and its two tensors
    assert read_back(store, entries[::2]) == ([entries[0], entries[2], entries[4], entries[6]], [])


def test_a_sink_can_not_change_what_is_stored(make, files):
    store = make()
    files.gate.clear()
    put_blocks(store, LINE, last=1)
    entry = entry_at(store, LINE.place(BLOCK))

    def scribble(tensors: dict[str, memoryview]) -> None:
        assert all(view.readonly for view in tensors.values())

    assert store.read([(entry, scribble)]) == []
    files.gate.set()
    assert store.drain(10)
    assert store.read([(entry, scribble)]) == []


def test_what_a_sink_raises_is_raised_to_its_caller_and_the_reader_lives_on(make):
    store = make()
    put_blocks(store, LINE, last=1)
    assert store.drain(10)
    entry = entry_at(store, LINE.place(BLOCK))

    def broken(tensors: dict[str, memoryview]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store.read([(entry, broken)])
    assert store.stats().pins == 0
    assert read_back(store, [entry]) == ([entry], [])


def test_a_width_of_nothing_and_no_tensors_at_all(make):
    store = make()
    place = LINE.place(BLOCK)
    nothing = specs(0)
    assert store.submit(place, "g", BLOCK, 0, nothing, [memoryview(b""), memoryview(b"")], wait=True) == "queued"
    assert store.submit(place, "h", BLOCK, 0, (), [], wait=True) == "queued"
    entries = [entry_at(store, place, "g"), entry_at(store, place, "h")]
    assert store.drain(10)
    assert read_back(store, entries) == (entries, [])
    assert store.read([]) == []


def test_a_closed_store_holds_nothing_and_says_so(make, files):
    store = make()
    files.gate.clear()
    put_blocks(store, LINE, last=4)
    assert files.arrived.wait(10)
    threading.Timer(0.1, files.gate.set).start()
    assert store.accepts
    entry = entry_at(store, LINE.place(BLOCK))
    store.close()
    store.close()
    assert read_back(store, [entry]) == ([], [entry])
    assert not store.accepts
    assert put(store, LINE.place(BLOCK), BLOCK, wait=True) == "off"
    assert store.lookup(LINE.keys[0], LINE.ids) == []
    assert store.stats().records == store.stats().queue_bytes == 0
    store.check()


@pytest.mark.parametrize("kind", ["file", "readonly"])
def test_a_directory_that_can_not_be_used_is_trouble_at_once(tmp_path, monkeypatch, kind):
    place = tmp_path / "kv"
    if kind == "file":
        place.write_text("")
    else:
        monkeypatch.setattr(FaultyFiles, "open_unlinked", _refuse)
    with pytest.raises(CacheTrouble, match="can't keep a KV cache") as caught:
        Store(place, NAMESPACE, MIB, MIB, print, FaultyFiles())
    assert "--no-cache" in caught.value.hint
    assert caught.value.exit_code == 1


def _refuse(self, directory):
    raise PermissionError(13, "Permission denied")


def test_check_sees_extents_that_do_not_tile_the_file(make):
    store = make()
    put_blocks(store, LINE, last=3)
    assert store.drain(10)
    entry = entry_at(store, LINE.place(2 * BLOCK))
    right = entry.extent
    for wrong in (right._replace(offset=0), right._replace(length=1), right._replace(length=MIB)):
        entry.extent = wrong
        with pytest.raises(AssertionError, match="store"):
            store.check()
    entry.extent = right
    store.check()
    store._room.budget = ONE
    with pytest.raises(AssertionError, match="allowed"):
        store.check()
    store._room.budget = MIB
    store._writer.queue_bytes = 1
    with pytest.raises(AssertionError, match="writer"):
        store.check()
    store._writer.queue_bytes = 0
