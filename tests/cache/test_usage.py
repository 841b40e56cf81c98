"""Usage decides what stays: what a position needs is kept with it, what nobody needs ages, what nobody uses can go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.order import Order
from mlxchat.cache.store import Store
from support.kvstore import MIB, NAMESPACE, Clock, FaultyFiles, Line, entry_at, put, random_ids, record_bytes

pytestmark = pytest.mark.exact

ONE = record_bytes()
REACHES = {"local:512": 512, "state": 0}
LINE = Line(random_ids(12 * BLOCK))

Maker = Callable[..., Store]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    made: list[Store] = []

    def build(budget: int, files: FaultyFiles | None = None, clock: Clock | None = None) -> Store:
        now = clock or Clock()
        made.append(Store(tmp_path, NAMESPACE, budget, MIB, print, files, now, reaches=REACHES, now=now))
        return made[-1]

    yield build
    for store in made:
        store.check()
        store.close()


def fill(store: Store, line: Line, first: int, last: int, user: str = "") -> None:
    """Blocks [first, last) of both kinds of layers, as a prefill writes them."""
    for n in range(first, last):
        for group in ("global", "local:512"):
            put(store, line.place((n + 1) * BLOCK), (n + 1) * BLOCK, group, wait=True, user=user)
            assert store.drain(10)


def held(store: Store, line: Line, group: str) -> list[int]:
    return [n for n, place in enumerate(line.blocks()) if store.contains(place, group)]


def chats_on(system: Line, count: int) -> list[Line]:
    """Conversations of two blocks each after the first two of `system`."""
    return [Line(np.concatenate([system.ids[: 2 * BLOCK], random_ids(2 * BLOCK, seed=100 + n)])) for n in range(count)]


def many_short_chats(make: Maker) -> None:
    """Eight chats on one system prompt, in room for four: its layers of both kinds stay, the stale chats go."""
    store = make(12 * ONE)
    chats = chats_on(LINE, 8)
    for chat in chats:
        store.touch([chat.place(2 * BLOCK)])  # each is restored to the end of the system prompt
        fill(store, chat, 0 if chat is chats[0] else 2, 4)
    assert held(store, chats[-1], "global") == held(store, chats[-1], "local:512") == [0, 1, 2, 3]
    assert [len(held(store, chat, "global")) for chat in chats[:5]] == [2] * 5, "only what they share is left of them"


def one_long_chat(make: Maker) -> None:
    """Twelve blocks of two kinds in room for sixteen records: old local ones made room for all global ones."""
    store = make(16 * ONE)
    fill(store, LINE, 0, 12)
    assert held(store, LINE, "global") == list(range(12))
    assert held(store, LINE, "local:512") == [8, 9, 10, 11]
    assert store.stats().dropped == {}


def test_many_short_chats_keep_the_system_prompt_they_share(make: Maker) -> None:
    many_short_chats(make)


def test_one_ever_longer_chat_gives_up_its_old_local_blocks(make: Maker) -> None:
    one_long_chat(make)


def test_planted_touches_that_reach_everything_starve_the_long_chat(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Order, "_is_needed", lambda self, group, distance: True)
    with pytest.raises(AssertionError):
        one_long_chat(make)


def test_planted_touches_that_reach_nothing_lose_the_system_prompt(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Order, "_is_needed", lambda self, group, distance: distance == 0)
    with pytest.raises(AssertionError):
        many_short_chats(make)


def test_a_window_that_reaches_into_a_block_needs_it(make: Maker) -> None:
    """A restore to 1,300 needs the rows from 788 on, and the block of 1,280 to 1,535, of which it is a part."""
    store = make(100 * ONE)
    fill(store, LINE, 0, 6)
    put(store, LINE.place(1280), 1280, "state")
    with store.lock:
        needed = {(e.header.group, e.header.position) for e in store._index.needed(LINE.place(1300))}
    assert needed == {("global", n * BLOCK) for n in range(1, 6)} | {("local:512", n * BLOCK) for n in (4, 5)}


# -- conversations ---------------------------------------------------------------------------------------------


def test_deleting_a_conversation_deletes_what_only_it_used(make: Maker) -> None:
    store = make(100 * ONE)
    one, two = chats_on(LINE, 2)
    fill(store, one, 0, 4, "one")
    fill(store, two, 0, 4, "two")
    assert store.leave("one") == 4
    assert held(store, one, "global") == [0, 1]
    assert held(store, two, "global") == held(store, two, "local:512") == [0, 1, 2, 3]
    assert store.leave("one") == 0
    assert store.leave("two") == 8
    assert store.stats().records == store.stats().file_bytes == 0


def test_finding_a_record_is_using_it(make: Maker) -> None:
    store = make(100 * ONE)
    fill(store, LINE, 0, 3, "one")
    assert store.contains(LINE.place(BLOCK), "global", "two")
    store.touch([], [entry_at(store, LINE.place(2 * BLOCK), "local:512")], "three")
    store.leave("one")
    assert (held(store, LINE, "global"), held(store, LINE, "local:512")) == ([0], [1])


def test_what_is_pinned_when_its_conversation_is_deleted_can_be_read_until_unpinned(make: Maker) -> None:
    store = make(100 * ONE)
    fill(store, LINE, 0, 1, "one")
    entry = entry_at(store, LINE.place(BLOCK))
    with store.pinned([entry]):
        store.leave("one")
        assert held(store, LINE, "global") == []
        assert store.read([(entry, lambda tensors: None)]) == []
    assert store.stats().file_bytes == 0


def test_what_waits_for_the_writer_is_deleted_too(make: Maker) -> None:
    files = FaultyFiles()
    store = make(100 * ONE, files)
    files.gate.clear()
    for n in range(1, 4):
        put(store, LINE.place(n * BLOCK), n * BLOCK, user="one")
    assert store.leave("one") == 3
    files.gate.set()
    assert store.drain(10)
    assert store.stats().records == store.stats().file_bytes == 0


def test_a_record_with_more_rows_keeps_the_users_of_the_one_before(make: Maker) -> None:
    store = make(100 * ONE)
    place, tensors = LINE.place(BLOCK), ()
    store.submit(place, "local:512", BLOCK, 100, tensors, [], wait=True, user="one")
    store.submit(place, "local:512", BLOCK, 0, tensors, [], wait=True, user="two")
    assert entry_at(store, place, "local:512").users == {"one", "two"}


# -- time to live ----------------------------------------------------------------------------------------------


def test_what_nobody_needs_for_its_time_to_live_is_deleted(make: Maker) -> None:
    clock = Clock()
    store = make(100 * ONE, clock=clock)
    one, two = chats_on(LINE, 2)
    fill(store, one, 0, 4)
    clock.now = 50.0
    fill(store, two, 2, 4)
    clock.now = 80.0
    assert store.expire(60.0) == 5, "the stale chat's own, and what no window reaches; the prefix was needed at 50 s"
    assert held(store, two, "global") == [0, 1, 2, 3]
    clock.now = 200.0
    pinned = entry_at(store, two.place(BLOCK))
    with store.pinned([pinned]):
        assert store.expire(60.0) == 6
    assert store.expire(60.0) == 1
    assert store.stats().expired == 12
    assert store.stats().file_bytes == 0
