"""A row is written once: later records of a block begin where earlier ones end, and together they bring it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlxchat.cache import places
from mlxchat.cache.coverage import Coverage
from mlxchat.cache.index import Index
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.layers import Layout, RowGroup
from mlxchat.cache.places import Places
from mlxchat.cache.store import Store
from mlxchat.engine.cache_setup import reaches_of
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.restorer import Restorer
from support import driver
from support.kvstore import MIB, NAMESPACE, FaultyFiles, Line, entry_at, put, random_ids, specs

pytestmark = pytest.mark.exact

LINE = Line(random_ids(3 * BLOCK))
GROUP = RowGroup("global", None, ())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path, NAMESPACE, MIB, MIB, print, FaultyFiles())
    yield made
    made.check()
    made.close()


def piece(store: Store, start: int, end: int, line: Line = LINE, user: str = "a", group: str = "global") -> None:
    """Rows [start, end) of a sequence, written."""
    data = [memoryview(bytes(spec.nbytes)) for spec in specs()]
    answer = store.submit(line.place(end), group, end, start, specs(), data, wait=True, user=user)
    assert answer == "queued"
    assert store.drain(10)


def held(store: Store, end: int, start: int = 0, user: str = "a", line: Line = LINE) -> int:
    return store.rows_held(line.place(end), "global", (start, end), user)


def found(store: Store, line: Line = LINE, group: RowGroup = GROUP) -> Coverage:
    """What is known of the line's first block."""
    cover = Coverage(group)
    matches = store.lookup(line.keys[0], line.ids[:BLOCK])
    cover.blocks.append([(match.equal, match.groups[group.name]) for match in matches if group.name in match.groups])
    return cover


def spans(cover: Coverage, position: int) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in cover.pieces(position)]


def test_how_far_the_rows_of_a_place_are_held(store: Store) -> None:
    assert held(store, 100) == 0
    piece(store, 0, 40)
    piece(store, 40, 90)
    assert [held(store, end) for end in (30, 40, 60, 90, 100, BLOCK)] == [30, 40, 60, 90, 90, 90]
    piece(store, 120, 150)
    assert held(store, 200) == 90
    assert held(store, 200, 120) == 150
    assert put(store, LINE.place(90), 90, user="a") == "present"
    assert put(store, LINE.place(60), 60, user="a") == "present"


def test_what_holds_them_is_used_and_needed(store: Store) -> None:
    """One who goes on from the rows of another keeps them from being deleted with the other."""
    piece(store, 0, 40)
    piece(store, 40, 90)
    assert held(store, 70, user="b") == 40, "the second holds what a said after that"
    piece(store, 40, 70, user="b")
    store.leave("a")
    assert sorted(entry.header.position for entry in store._index) == [40, 70]
    assert spans(found(store), 70) == [(0, 40), (40, 70)]


def test_a_longer_record_counts_for_whoever_uses_it(store: Store) -> None:
    piece(store, 0, 90)
    assert held(store, 70, user="a") == 70
    assert held(store, 70, user="b") == 0
    assert held(store, 70, user="") == 70


def test_another_branch_brings_nothing(store: Store) -> None:
    ids = LINE.ids.copy()
    ids[50] += 1
    piece(store, 0, 90)
    assert held(store, 90, line=Line(np.asarray(ids))) == 0


def test_the_pieces_of_a_position(store: Store) -> None:
    for start, end in ((0, 40), (40, 90), (90, BLOCK)):
        piece(store, start, end)
    cover = found(store)
    assert spans(cover, 30) == [(0, 30)]
    assert spans(cover, 40) == [(0, 40)]
    assert spans(cover, 91) == [(0, 40), (40, 90), (90, 91)]
    assert all(cover.covers(position) for position in range(1, BLOCK + 1))
    assert len(cover._unbroken) == 1
    store.forget(LINE.place(90), "global")
    cover = found(store)
    assert [position for position in range(1, BLOCK + 1) if cover.covers(position)] == list(range(1, 41))
    assert len(cover._unbroken) == 0


def test_the_fewest_records_are_read(store: Store) -> None:
    piece(store, 0, 40)
    piece(store, 40, 90)
    piece(store, 0, BLOCK)
    assert spans(found(store), 80) == [(0, 80)]
    assert spans(found(store), 30) == [(0, 30)]
    assert found(store).pieces(30)[0].entry is entry_at(store, LINE.place(40)), "the smaller one"


def test_a_window_needs_no_rows_before_it(store: Store) -> None:
    """Of the first block, all but whose first 40 rows is there, what is under a window of 300."""
    for start, end in ((0, 40), (40, 90), (90, BLOCK), (BLOCK, 2 * BLOCK)):
        piece(store, start, end, group="local:300")
    store.forget(LINE.place(40), "local:300")
    cover = found(store, group=RowGroup("local:300", 300, ()))
    cover.blocks.append([(BLOCK, entry_at(store, LINE.place(2 * BLOCK), "local:300"))])
    assert [position for position in range(300, 400) if cover.covers(position)] == list(range(340, 400))
    assert spans(cover, 360) == [(60, 90), (90, BLOCK), (BLOCK, 360)]
    assert spans(cover, 400) == [(100, BLOCK), (BLOCK, 400)]


def test_the_end_of_a_block_goes_before_its_beginning(store: Store) -> None:
    for start, end in ((0, 40), (40, 90), (90, BLOCK)):
        piece(store, start, end)
    store.touch([LINE.place(40)])
    store.touch([LINE.place(BLOCK)])
    assert [entry.header.position for entry in store._index] == [BLOCK, 90, 40]


def test_planted_fault_places_inside_a_block_not_needed_turns_it_red(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Places, "inside", lambda self, place: [])
    with pytest.raises(AssertionError):
        test_the_end_of_a_block_goes_before_its_beginning(store)


def rows_written(driver: Any) -> dict[str, Counter[int]]:
    """For each group how often each row was written: along one chain, so that a row is a position."""
    out: dict[str, Counter[int]] = {group.name: Counter() for group in driver.reuse.layout.rows}
    for entry in driver.store._index:
        if entry.header.group in out:
            out[entry.header.group].update(range(entry.header.row_start, entry.header.position))
    return out


def loop(drivers: Any, model: Any, draw: Any) -> tuple[Any, Any, list[list[int]], list[int]]:
    """Six requests of a tool loop, each parked: (cached, uncached, prompts, the last one's reply included)."""
    cached, uncached = drivers(model)
    ids, prompts = draw(270), []
    for _ in range(6):
        prompts.append(list(ids))
        reply = draw(7)
        cached.turn("a", ids, reply, {len(ids) - 4: "stable_tool"})
        cached.drop_live("a")
        assert cached.store.drain(10)
        end, ids = [*ids, *reply], [*ids, *reply, *draw(12)]
    return cached, uncached, prompts, end


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_5", "qwen3"])
def test_a_loop_of_short_requests(kind: str, model: Any, draw: Any, drivers: Any) -> None:
    """No row is written twice; back at any prompt the rows come from several records, bit for bit."""
    cached, uncached, prompts, end = loop(drivers, model(kind), draw)
    for counts in rows_written(cached).values():
        assert counts == Counter(range(len(end)))
    assert cached.store.stats().records == cached.store.stats().writes, "none took another's place"
    again = [*prompts[3][:-4], *draw(30)]
    stats, logits = cached.turn("a", again, draw(3))
    assert stats.cached_tokens == len(prompts[3]) - 4
    assert stats.restore_kind == "anchor"
    _, wanted = uncached.turn("a", again, [], extra_cut=stats.cached_tokens)
    assert np.array_equal(logits[0], wanted[0])


def test_planted_fault_a_piece_too_short_turns_it_red(
    model: Any, draw: Any, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that begin a row after the last one ended, and don't say so."""
    holders = Index.holders

    def late(self: Index, *arguments: Any) -> Any:
        at, used = holders(self, *arguments)
        return min(at + 1, arguments[2][1]) if used else at, used

    monkeypatch.setattr(Index, "holders", late)
    with pytest.raises(AssertionError):
        test_a_loop_of_short_requests("gemma3_text", model, draw, drivers)


def branched(drivers: Any, model: Any, draw: Any) -> dict[str, Counter[int]]:
    """How often rows were written by a second prompt that leaves the first at its stable prefix, the reply dropped."""
    cached, _ = drivers(model)
    prompt = draw(300)
    cached.turn("a", prompt, draw(20), {100: "system_end", 290: "stable_user"}, drops=True, stable=290)
    stats, _ = cached.turn("a", [*prompt[:290], *draw(100)], [], {})
    assert stats.cached_tokens == 290
    cached.turn("b", [*prompt[:100], *draw(150)], [], {})
    cached.drop_live("a")
    cached.drop_live("b")
    return rows_written(cached)


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3"])
def test_branches_share_the_rows_before_them(kind: str, model: Any, draw: Any, drivers: Any) -> None:
    for counts in branched(drivers, model(kind), draw).values():
        assert all(counts[row] == 1 for row in (*range(100), *range(250, 290), *range(300, 390)))
        assert all(counts[row] == 2 for row in (*range(100, 250), *range(290, 299)))
        assert max(counts) == 389


def test_planted_fault_records_that_end_anywhere_turn_it_red(
    model: Any, draw: Any, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BRANCHES", ())
    with pytest.raises(AssertionError):
        test_branches_share_the_rows_before_them("gemma3_text", model, draw, drivers)


def order(store: Store) -> list[int]:
    return [entry.header.position for entry in store._index]


def test_asking_for_rows_that_are_all_there_refreshes_nothing(store: Store) -> None:
    """Parking asks for every block; old blocks of a window, which nobody needs, must go on ageing."""
    piece(store, 0, 40)
    piece(store, 0, 50, Line(random_ids(BLOCK, seed=3)))
    before = order(store)
    assert held(store, 40) == 40
    assert order(store) == before == [40, 50]
    assert held(store, 60) == 40
    assert order(store) == [50, 40], "what a new record will stand on"


def test_a_window_below_a_block_needs_the_block_from_its_edge_on(model: Any) -> None:
    layout = Layout.of(FreshCaches(model("gpt_oss"), None)())
    assert {group.window for group in layout.rows} == {None, 128}
    assert reaches_of(layout)["local:128"] == BLOCK


@pytest.mark.parametrize("many", [False, True])
def test_places_inside_are_found_among_few_and_many(store: Store, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    monkeypatch.setattr(places, "_MANY", 0 if many else 1000)
    for start, end in ((0, 40), (40, 90), (90, BLOCK)):
        piece(store, start, end)
    found = store._index._places.inside(LINE.place(BLOCK))
    assert found == [LINE.place(90), LINE.place(40)]


def test_blocks_of_several_records_are_planned_without_a_search(
    model: Any, draw: Any, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, _ = drivers(model("gemma3_text"))
    ids = draw(2 * BLOCK)
    for end in (200, 300, 520):
        cached.turn("a", ids[:end] + draw(max(0, end - 512)), [])
    assert sorted({entry.header.position for entry in cached.store._index})[:3] == [199, 256, 299]

    def look(*_: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr(Store, "lookup", look)
    keys = Line(np.array(ids, np.int32), cached.reuse._namespace).keys[:2]
    plan = cached.reuse._restorer.planner.plan(np.array(ids, np.int32), keys, None, 2 * BLOCK, 0)
    cached.store.unpin(plan.entries)
    assert plan.position == 2 * BLOCK


def deleted_with_its_words(drivers: Any, model: Any, draw: Any) -> None:
    """b leaves a in the middle of one of its records: a's words go with a, what b stands on stays."""
    cached, _ = drivers(model)
    shared, own = draw(150), draw(60)
    cached.turn("a", [*shared, *draw(50)], draw(5))
    cached.drop_live("a")
    stats, _ = cached.turn("b", [*shared, *own], [])
    assert stats.cached_tokens == 150
    cached.drop_live("b")
    cached.reuse.forget(cached.sequence("a"))
    assert {entry.header.position for entry in cached.store._index} <= {209, 210}
    stats, _ = cached.turn("b", [*shared, *own, *draw(9)], [])
    assert stats.cached_tokens == 210


def test_a_restore_in_the_middle_of_a_record_uses_none_of_its_words(model: Any, draw: Any, drivers: Any) -> None:
    deleted_with_its_words(drivers, model("gemma3_text"), draw)


def test_planted_fault_whoever_restores_keeps_everything_turns_it_red(
    model: Any, draw: Any, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch = Restorer._note_use

    def greedy(self: Any, sequence: Any, plan: Any, *rest: Any) -> None:
        touch(self, sequence, plan, *rest)
        self._store.use(sequence.name, plan.entries)

    monkeypatch.setattr(Restorer, "_note_use", greedy)
    with pytest.raises(AssertionError):
        deleted_with_its_words(drivers, model("gemma3_text"), draw)
