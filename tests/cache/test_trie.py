from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.cache import trie as trie_module
from mlxchat.cache.trie import SequenceTrie, common_prefix
from support.kvstore import random_ids

pytestmark = pytest.mark.exact

few = st.lists(st.integers(0, 2), max_size=12).map(lambda ids: np.array(ids, dtype=np.int32))


def by_hand(known: list[np.ndarray], ids: np.ndarray) -> int:
    best = 0
    for other in known:
        n = 0
        while n < min(len(other), len(ids)) and other[n] == ids[n]:
            n += 1
        best = max(best, n)
    return best


def compare(sequences: list[np.ndarray], asked: list[np.ndarray]) -> None:
    trie = SequenceTrie()
    for at, ids in enumerate(sequences):
        assert trie.longest_match(ids) == by_hand(sequences[:at], ids)
        trie.add(ids)
        trie.check()
    for ids in asked:
        assert trie.longest_match(ids) == by_hand(sequences, ids)


@given(st.lists(few, max_size=12), st.lists(few, max_size=6))
def test_the_longest_match_is_the_one_found_by_hand(sequences, asked):
    compare(sequences, asked)


def test_planted_fault_a_compare_one_short_turns_it_red(monkeypatch):
    sequences = [np.array(ids, dtype=np.int32) for ids in ([1, 2, 3, 4], [1, 2, 5], [1, 2, 5, 6, 7])]
    compare(sequences, sequences)
    monkeypatch.setattr(trie_module, "common_prefix", lambda a, b: max(0, common_prefix(a, b) - 1))
    with pytest.raises(AssertionError):
        compare(sequences, sequences)


def test_what_is_added_is_copied():
    trie, ids = SequenceTrie(), np.arange(10, dtype=np.int32)
    trie.add(ids)
    ids[:] = 7
    assert trie.longest_match(np.arange(10, dtype=np.int32)) == 10
    trie.check()


def test_a_sequence_that_grows_is_one_node_and_costs_its_ids_once():
    trie, ids = SequenceTrie(), random_ids(1000)
    for n in range(1, 1001, 37):
        trie.add(ids[:n])
    trie.add(ids)
    trie.add(ids[:500])
    assert (trie.nodes, trie.bytes) == (1, 4000)
    trie.check()


def test_branches_share_their_prefix():
    trie, ids = SequenceTrie(), random_ids(1000)
    other = ids.copy()
    other[600:] += 1
    trie.add(ids)
    trie.add(other)
    assert (trie.nodes, trie.bytes) == (3, 4 * (1000 + 400))
    assert trie.longest_match(other) == 1000
    assert trie.longest_match(ids[:700]) == 700
    trie.check()


def test_pictures_of_one_placeholder_do_not_match():
    trie, ids = SequenceTrie(), np.full(100, 9, dtype=np.int32)
    trie.add(ids, [(20, 50, b"cat")])
    assert trie.longest_match(ids, [(20, 50, b"cat")]) == 100
    assert trie.longest_match(ids, [(20, 50, b"dog")]) == 20
    assert trie.longest_match(ids) == 20
    assert trie.longest_match(ids[:30], [(20, 50, b"cat")]) == 30


def test_an_empty_sequence_is_nothing():
    trie = SequenceTrie()
    trie.add(random_ids(0))
    assert (trie.nodes, trie.longest_match(random_ids(5)), trie.longest_match(random_ids(0))) == (0, 0, 0)
    trie.check()


def test_check_sees_a_broken_tree():
    for spoil in ("run", "count", "bytes", "child"):
        trie = SequenceTrie()
        trie.add(np.array([1, 2, 3], dtype=np.int32))
        trie.add(np.array([1, 5], dtype=np.int32))
        node = trie._root.children[1]
        if spoil == "run":
            node.run = node.run[:0]
        elif spoil == "count":
            trie.nodes += 1
        elif spoil == "bytes":
            trie.bytes += 4
        else:
            node.children[9] = node.children.pop(5)
        with pytest.raises(AssertionError):
            trie.check()


def test_a_prompt_of_128k_tokens_is_compared_well_under_ten_milliseconds():
    trie, ids = SequenceTrie(), random_ids(131_072)
    for at in range(1000, 130_000, 10_000):
        other = ids.copy()
        other[at:] += 1
        trie.add(other)
    trie.add(ids)
    best = min(_timed(lambda: trie.longest_match(ids)) for _ in range(5))
    assert trie.longest_match(ids) == ids.size
    assert best < 0.010


def _timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
