"""A long trace through trie, planner and index, scaled down: the answers are right, and quick ways change none."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mlxchat.cache.index import Entry, Index
from mlxchat.cache.keys import BLOCK, Place
from mlxchat.cache.order import Order
from mlxchat.cache.planner import Planner
from mlxchat.cache.records import RecordHeader, TensorSpec
from mlxchat.cache.trie import common_prefix
from support.kvstore import Line, random_ids
from support.trace_scale import Asked, Trace, prompts

pytestmark = pytest.mark.plain

SMALL = {"requests": 60, "tokens": 4100, "conversations": 5}


def asked(folder: Path) -> Iterator[tuple[np.ndarray, Asked]]:
    trace = Trace(folder)
    for ids in prompts(**SMALL):
        yield ids, trace.ask(ids)
        trace.store.check()
        trace.trie.check()
    trace.close()


def test_every_prompt_finds_all_that_was_fed_of_it(tmp_path: Path) -> None:
    fed: list[np.ndarray] = []
    for ids, found in asked(tmp_path):
        longest = max((common_prefix(ids, other) for other in fed), default=0)
        assert found.common == longest
        edge = longest if longest in {len(other) for other in fed} else longest // BLOCK * BLOCK
        assert edge <= found.position <= min(longest, len(ids) - 1)
        fed.append(ids)
    assert found.position == len(ids) - 60, "the last request goes on from its conversation's last one"


def test_looking_block_by_block_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [(found.common, found.position) for _, found in asked(tmp_path / "quick")]
    monkeypatch.setattr(Planner, "_take_whole", lambda *args: False)
    assert [(found.common, found.position) for _, found in asked(tmp_path / "slow")] == quick


def test_planted_a_quick_way_that_sees_no_tails_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [(found.common, found.position) for _, found in asked(tmp_path / "quick")]
    look = Planner._look_below

    def blind(self: Planner, parent: bytes, block: int, ids: np.ndarray, coverage: dict, states: dict) -> None:
        look(self, parent, block, ids[: len(ids) // BLOCK * BLOCK], coverage, states)

    monkeypatch.setattr(Planner, "_look_below", blind)
    assert [(found.common, found.position) for _, found in asked(tmp_path / "blind")] != quick


class Eager(Index):
    """Brings the order up to date at each touch."""

    def touch(self, places: Iterable[Place], entries: Iterable[Entry] = ()) -> None:
        super().touch(places, entries)
        self._order.settle()


def history(index: Index, seed: int) -> list[tuple[bytes, int]]:
    """Random inserts, touches, demotes and removals; the order of eviction in the end, by place."""
    rng = random.Random(seed)
    lines = [Line(random_ids(6 * BLOCK, seed=n)) for n in range(3)]
    there: dict[tuple[int, int], Entry] = {}
    for _ in range(120):
        which, position = rng.randrange(3), rng.choice([100, BLOCK, 300, 2 * BLOCK, 700, 3 * BLOCK, 5 * BLOCK])
        place, key = lines[which].place(position), (which, position)
        known = next((entry for entry in there.values() if entry.live and entry.header.place == place), None)
        action = rng.random()
        if known is None and action < 0.5:
            rows = place.length
            tensor = TensorSpec("0.0", "U8", (1, rows, 1))
            header = RecordHeader(bytes(32), "global", place, position, position - rows, (tensor,))
            there[key] = Entry(header, (memoryview(bytes(rows)),))
            index.insert(there[key])
        elif action < 0.8:
            index.touch([place, lines[rng.randrange(3)].place(BLOCK)])
        elif action < 0.9:
            index.demote([place])
        elif known is not None:
            index.remove(known)
        if rng.random() < 0.05:
            index.check()
            list(index)
    return [(entry.header.place.ids, entry.header.position) for entry in index]


@pytest.mark.parametrize("seed", range(25))
def test_touches_that_are_put_off_give_the_same_order(seed: int) -> None:
    assert history(Index(lambda extent: None), seed) == history(Eager(lambda extent: None), seed)


def test_planted_touches_taken_oldest_first_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [history(Eager(lambda extent: None), seed) for seed in range(10)]
    settle = Order.settle

    def backwards(self: Order) -> None:
        self._touched.reverse()
        settle(self)

    monkeypatch.setattr(Order, "settle", backwards)
    assert [history(Index(lambda extent: None), seed) for seed in range(10)] != wanted


def test_touches_that_are_put_off_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(lambda extent: None)
    for _ in range(10_000):
        index.touch([Line(random_ids(BLOCK)).place(BLOCK)])
    assert len(index._order._touched) <= 4097
