"""What the vision tower made, kept in the store: as it was put, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache.keys import namespace_key
from mlxchat.cache.picture_records import GROUP, PictureRecords
from mlxchat.cache.store import Store

pytestmark = pytest.mark.exact
DIGEST = sha256(b"a picture").digest()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    troubles: list[str] = []
    made = Store(tmp_path, namespace_key({"test": "pictures"}), 1 << 24, 1 << 24, troubles.append)
    yield made
    made.check()
    made.close()
    assert not troubles


def _arrays() -> list[mx.array]:
    return [mx.random.normal((1, 20, 8)), mx.random.normal((20, 8)).astype(mx.bfloat16), mx.zeros((0, 4))]


def test_arrays_come_back_as_they_were(store: Store) -> None:
    arrays, records = _arrays(), PictureRecords(store)
    assert records.get(DIGEST) is None
    records.put(DIGEST, arrays)
    for _ in range(2):  # waiting in memory, then written
        found = records.get(DIGEST)
        assert found is not None
        assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in arrays]
        assert all(mx.array_equal(a, b) for a, b in zip(found, arrays, strict=True))
        assert store.drain(10)
    assert records.get(sha256(b"another").digest()) is None


def test_what_was_read_is_no_part_of_the_store(store: Store) -> None:
    records, arrays = PictureRecords(store), _arrays()
    records.put(DIGEST, arrays)
    store.drain(10)
    first = records.get(DIGEST)
    assert first is not None
    first[0][:] = 7.0
    mx.eval(first[0])
    again = records.get(DIGEST)
    assert again is not None
    assert mx.array_equal(again[0], arrays[0])


def test_a_picture_is_written_once(store: Store) -> None:
    records = PictureRecords(store)
    records.put(DIGEST, _arrays())
    written = store.stats().records
    records.put(DIGEST, _arrays())
    assert store.stats().records == written == 1


def test_a_damaged_record_is_a_miss(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = PictureRecords(store)
    records.put(DIGEST, _arrays())
    store.drain(10)
    place = records._place(DIGEST)
    entry = store.block(place.parent, place.elements).groups[GROUP]  # type: ignore[union-attr]
    entry.checksum ^= 1
    monkeypatch.setattr(store._recall, "_on_trouble", lambda line: None)
    assert records.get(DIGEST) is None
    records.put(DIGEST, _arrays())
    assert records.get(DIGEST) is not None


def test_pictures_never_stand_where_ids_could(store: Store) -> None:
    """A prompt of nothing but the digest's own elements finds no picture."""
    PictureRecords(store).put(DIGEST, _arrays())
    from mlxchat.cache.keys import chain_keys

    elements = np.frombuffer(DIGEST, "<i4")
    (root,) = chain_keys(store.namespace, elements)
    assert store.lookup(root, elements) == []
