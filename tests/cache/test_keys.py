from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.cache.keys import BLOCK, Chain, Place, block_key, chain_keys, elements, namespace_key, root_key
from support.kvstore import NAMESPACE, random_ids

pytestmark = pytest.mark.exact

CAT, DOG = hashlib.sha256(b"cat").digest(), hashlib.sha256(b"dog").digest()


def test_namespaces_differ_by_every_field_and_not_by_order():
    one = namespace_key({"a": "bc", "d": "e"})
    assert one == namespace_key({"d": "e", "a": "bc"})
    others = [{"ab": "c", "d": "e"}, {"a": "bc", "d": "f"}, {"a": "bc"}, {"a": "bc", "d": "e", "f": ""}, {}]
    assert len({one, *map(namespace_key, others)}) == 1 + len(others)


def test_the_chain_is_the_documented_hash():
    ids = random_ids(2 * BLOCK + 5)
    first = hashlib.sha256(NAMESPACE).digest()
    second = hashlib.sha256(first + ids[:BLOCK].astype("<i4").tobytes()).digest()
    third = hashlib.sha256(second + ids[BLOCK : 2 * BLOCK].astype("<i4").tobytes()).digest()
    assert chain_keys(NAMESPACE, ids) == [first, second, third]


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_one_key_for_the_root_and_one_for_each_full_block(n):
    assert len(chain_keys(NAMESPACE, random_ids(n))) == 1 + n // BLOCK


def test_a_changed_id_changes_its_block_and_all_after():
    ids = random_ids(4 * BLOCK)
    other = ids.copy()
    other[BLOCK + 7] += 1
    same = [a == b for a, b in zip(chain_keys(NAMESPACE, ids), chain_keys(NAMESPACE, other), strict=True)]
    assert same == [True, True, False, False, False]
    assert not set(chain_keys(NAMESPACE, ids)) & set(chain_keys(namespace_key({}), ids))


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6))
def test_growing_in_steps_gives_the_same_keys(steps):
    ids = random_ids(sum(steps))
    chain, new, at = Chain(NAMESPACE), [], 0
    for step in steps:
        new += chain.append(ids[at : at + step])
        at += step
        assert len(chain) == at
    assert chain.keys == chain_keys(NAMESPACE, ids) == [root_key(NAMESPACE), *new]


def test_a_chain_goes_back_to_an_edge_and_grows_another_way():
    ids, other = random_ids(3 * BLOCK + 9), random_ids(3 * BLOCK, seed=1)
    chain = Chain(NAMESPACE)
    chain.append(ids)
    chain.truncate(2 * BLOCK)
    chain.append(other)
    assert chain.keys == chain_keys(NAMESPACE, np.concatenate([ids[: 2 * BLOCK], other]))
    for bad in (BLOCK + 1, -BLOCK, 100 * BLOCK):
        with pytest.raises(ValueError, match="can't cut"):
            chain.truncate(bad)


def test_another_picture_is_another_sequence_from_its_first_position_on():
    ids = random_ids(3 * BLOCK)
    span = (BLOCK + 10, BLOCK + 60)
    cat, dog = elements(ids, [(*span, CAT)]), elements(ids, [(*span, DOG)])
    assert np.array_equal(cat != ids, dog != ids)
    assert list(np.flatnonzero(cat != ids)) == list(range(*span))
    assert cat[span[0]] != dog[span[0]]
    assert (cat[slice(*span)] < 0).all()
    keys = [chain_keys(NAMESPACE, ids, [(*span, digest)]) for digest in (CAT, DOG)]
    assert [a == b for a, b in zip(*keys, strict=True)] == [True, True, False, False]
    assert keys[0] == chain_keys(NAMESPACE, cat)


def test_a_picture_over_a_block_edge_is_in_both_blocks_and_in_prefixes():
    ids = random_ids(2 * BLOCK)
    span = (BLOCK - 20, BLOCK + 20)
    whole = elements(ids, [(*span, CAT)])
    for n in (BLOCK - 30, BLOCK - 20, BLOCK, BLOCK + 5, 2 * BLOCK):
        assert np.array_equal(elements(ids[:n], [(*span, CAT)]), whole[:n])


def test_elements_without_pictures_are_the_ids_uncopied():
    ids = random_ids(10)
    assert elements(ids) is ids
    assert elements(ids.astype(np.int64)).dtype == np.int32


@pytest.mark.parametrize("span", [(5, 5), (6, 5), (-1, 4)])
def test_an_impossible_span_is_refused(span):
    with pytest.raises(ValueError, match="can't span"):
        elements(random_ids(10), [(*span, CAT)])


def test_ids_of_two_dimensions_are_refused():
    with pytest.raises(ValueError, match="one dimension"):
        elements(random_ids(4).reshape(2, 2))


@pytest.mark.parametrize("position", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_place_is_the_edge_strictly_before_and_what_follows(position):
    ids = random_ids(2 * BLOCK + 1)
    keys = chain_keys(NAMESPACE, ids)
    place = Place.at(keys, ids, position)
    edge = (position - 1) // BLOCK
    assert place.parent == keys[edge]
    assert np.array_equal(place.elements, ids[edge * BLOCK : position])
    assert place.is_block == (position % BLOCK == 0)
    if place.is_block:
        assert place.key == block_key(place.parent, place.ids) == keys[position // BLOCK]
    else:
        with pytest.raises(ValueError, match="full block"):
            _ = place.key


def test_no_place_at_zero_past_the_end_or_of_odd_bytes():
    ids = random_ids(300)
    for position in (0, 301, -1):
        with pytest.raises(ValueError, match="no place"):
            Place.at(chain_keys(NAMESPACE, ids), ids, position)
    for parent, held in ((b"", bytes(4)), (bytes(32), b""), (bytes(32), bytes(5)), (bytes(32), bytes(4 * BLOCK + 4))):
        with pytest.raises(ValueError, match="no place"):
            Place(parent, held)
