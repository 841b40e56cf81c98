from __future__ import annotations

import pytest
from mlxchat.cache.index import Entry, Index
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.records import RecordHeader
from mlxchat.cache.scratch import Extent
from support.kvstore import NAMESPACE, Line, random_ids, specs

pytestmark = pytest.mark.exact

LINE = Line(random_ids(5 * BLOCK + 50))


@pytest.fixture
def freed():
    return []


@pytest.fixture
def index(freed):
    index = Index(freed.append)
    yield index
    index.check()


def stored(index: Index, position: int, group: str = "global", line: Line = LINE) -> Entry:
    """Insert a record as already written, at an extent of its own."""
    place = line.place(position)
    header = RecordHeader(NAMESPACE, group, place, position, position - place.length, specs())
    entry = Entry(header, extent=Extent(position * 1000 + len(group), 1))
    index.insert(entry)
    return entry


def order(index: Index) -> list[int]:
    """Positions, the next to be evicted first."""
    return [entry.header.position for entry in index]


def test_a_record_is_found_by_place_and_group(index):
    entry = stored(index, 256)
    state = stored(index, 256, "state")
    place = LINE.place(256)
    assert index.groups(place) == {"global": entry, "state": state}
    assert index.groups(LINE.place(255)) == {}
    assert len(index) == 2
    assert index.record_bytes == entry.nbytes + state.nbytes


def test_children_are_all_places_below_an_edge(index):
    for position in (256, 300, 512, 520):
        stored(index, position)
    assert set(index.children(LINE.keys[1])) == {LINE.place(300).ids, LINE.place(512).ids}
    assert set(index.children(LINE.keys[0])) == {LINE.place(256).ids}
    assert index.children(LINE.keys[4]) == {}


def test_a_second_record_of_a_group_at_a_place_is_refused(index):
    stored(index, 256)
    with pytest.raises(ValueError, match="second record"):
        stored(index, 256)


def test_an_insert_refreshes_its_chain_suffix_before_prefix(index):
    for position in (256, 512, 768):
        stored(index, position)
    assert order(index) == [768, 512, 256]
    other = Line(random_ids(2 * BLOCK, seed=9))
    stored(index, 256, line=other)
    stored(index, 1024)
    assert order(index) == [256, 1024, 768, 512, 256]


def test_planted_fault_without_the_chain_the_prefix_goes_first(index, monkeypatch):
    monkeypatch.setattr(Index, "touch", lambda self, places, entries=(): None)
    for position in (256, 512, 768):
        stored(index, position)
    assert order(index) != [768, 512, 256]


def test_touch_of_places_on_two_branches_keeps_each_suffix_before_its_prefix(index):
    ids = LINE.ids.copy()
    ids[600:] += 1
    branch = Line(ids)
    for position in (256, 512, 768, 1024):
        stored(index, position)
    stored(index, 768, line=branch)
    stored(index, 700, line=branch)
    index.touch([LINE.place(512), branch.place(700), LINE.place(1024)])
    assert order(index) == [768, 1024, 768, 700, 512, 256]


def test_a_chain_is_followed_over_a_hole(index):
    entries = [stored(index, position) for position in (256, 512, 768, 800)]
    whole = [LINE.place(p) for p in (800, 768, 512, 256)]
    assert list(index.chain(LINE.place(800))) == whole
    index.remove(entries[1])
    assert list(index.chain(LINE.place(800))) == [whole[0], whole[1], whole[3]]
    stored(index, 1024)
    assert order(index) == [1024, 800, 768, 256]
    stored(index, 512)
    assert order(index) == [1024, 800, 768, 512, 256]


def test_a_block_that_was_never_stored_is_a_hole_too(index):
    stored(index, 256)
    index.link(LINE.place(512))
    index.link(LINE.place(540))
    assert list(index.chain(LINE.place(768))) == [LINE.place(768), LINE.place(256)]


def test_demote_takes_what_follows_along_suffix_first(index):
    other = Line(random_ids(2 * BLOCK, seed=9))
    stored(index, 256, line=other)
    for position in (256, 512, 520, 768, 1024, 1060):
        stored(index, position)
    index.demote([LINE.place(768)])
    assert order(index)[:3] == [1060, 1024, 768]
    assert order(index)[3:] == [256, 520, 512, 256]


def test_pinned_and_spared_entries_are_no_victims(index):
    first, second, third = (stored(index, position) for position in (256, 512, 768))
    pending = stored(index, 1024)
    pending.extent, pending.payload = None, (memoryview(b""),)
    index.pin(third)
    assert list(index.victims([first])) == [second]
    index.unpin(third)
    assert list(index.victims([])) == [third, second, first]


def test_an_evicted_entry_frees_its_extent(index, freed):
    entry = stored(index, 256)
    extent = entry.extent
    index.remove(entry)
    index.remove(entry)
    assert freed == [extent]
    assert (len(index), entry.extent, entry.live) == (0, None, False)


def test_a_pinned_entry_that_is_removed_keeps_its_bytes_until_the_last_unpin(index, freed):
    entry = stored(index, 256)
    extent = entry.extent
    index.pin(entry)
    index.pin(entry)
    index.remove(entry)
    assert (index.groups(LINE.place(256)), freed, index.limbo) == ({}, [], {entry})
    index.check()
    index.unpin(entry)
    assert freed == []
    index.unpin(entry)
    assert (freed, index.limbo, index.pinned) == ([extent], set(), set())


def test_a_pin_that_comes_too_late_is_harmless(index, freed):
    entry = stored(index, 256)
    index.remove(entry)
    index.pin(entry)
    index.unpin(entry)
    assert len(freed) == 1


def test_more_unpins_than_pins_are_an_error(index):
    with pytest.raises(ValueError, match="more often"):
        index.unpin(stored(index, 256))


def test_a_record_published_after_it_was_removed_gives_its_extent_back(index, freed):
    entry = stored(index, 256)
    entry.extent, entry.payload = None, (memoryview(b""),)
    index.remove(entry)
    index.publish(entry, Extent(5, 5), 0)
    assert (freed, entry.extent) == ([Extent(5, 5)], None)


def test_check_sees_each_contradiction(freed):
    def spoil(change) -> None:
        index = Index(freed.append)
        entries = [stored(index, position) for position in (256, 512, 540)]
        index.pin(entries[1])
        index.check()
        change(index, entries)
        with pytest.raises(AssertionError, match="index"):
            index.check()

    spoil(lambda index, entries: index._order._entries.popitem())
    spoil(lambda index, entries: index._places._blocks.clear())
    spoil(lambda index, entries: index._places._blocks.update({b"": LINE.place(1024)}))
    spoil(lambda index, entries: index._places._parents.clear())
    spoil(lambda index, entries: index._places._below.update({b"": {}}))
    spoil(lambda index, entries: index._places._below[LINE.keys[0]].update({LINE.place(200).ids: {}}))
    spoil(lambda index, entries: setattr(index, "record_bytes", 1))
    spoil(lambda index, entries: setattr(entries[0], "pins", 1))
    spoil(lambda index, entries: setattr(entries[1], "pins", 0))
    spoil(lambda index, entries: setattr(entries[0], "pins", -1))
    spoil(lambda index, entries: setattr(entries[0], "live", False))
    spoil(lambda index, entries: setattr(entries[0], "extent", None))
    spoil(lambda index, entries: index.limbo.add(entries[0]))
    spoil(lambda index, entries: setattr(entries[0], "header", entries[1].header))
