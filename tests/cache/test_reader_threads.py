"""Much that goes straight to its place is read by several threads: every byte arrives, and a bad record is one miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from mlxchat.cache import read_ahead, reader
from mlxchat.cache.files import FileSystem
from mlxchat.cache.index import Entry
from mlxchat.cache.keys import Place
from mlxchat.cache.records import TensorSpec
from mlxchat.cache.store import Store

pytestmark = pytest.mark.plain

RECORDS, WIDTH = 40, 64 * 1024
BAD = 17


@dataclass
class Target:
    """Where one record belongs."""

    data: bytearray = field(default_factory=lambda: bytearray(WIDTH))

    def places(self, name: str) -> Sequence[memoryview]:
        return [memoryview(self.data)]

    def __call__(self, tensors: dict[str, memoryview]) -> None:
        (self.data[:],) = tensors.values()


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, list[Entry]]:
    monkeypatch.setattr(reader, "ALONE_BYTES", 0)
    monkeypatch.setattr(reader, "MOST_THREADS", 4)
    store = Store(tmp_path, bytes(32), 64 << 20, 64 << 20, lambda line: None)
    for number in range(RECORDS):
        place = Place(bytes([number]) * 32, np.arange(256, dtype=np.int32).tobytes())
        payload = np.full(WIDTH, number, np.uint8)
        spec = TensorSpec("0.0", "U8", (1, 256, WIDTH // 256))
        assert store.submit(place, "global", 256, 0, [spec], [payload], wait=True) == "queued"
    assert store.drain(30)
    return store, sorted(store._index, key=lambda entry: entry.header.place.parent)


def test_every_record_comes_to_its_place(stored: tuple[Store, list[Entry]]) -> None:
    store, entries = stored
    targets = [Target() for _ in entries]
    assert store.read(list(zip(entries, targets, strict=True))) == []
    assert [set(target.data) for target in targets] == [{number} for number in range(RECORDS)]
    store.close()


def test_the_disk_is_told_of_the_first_and_of_nothing_after_the_end(
    stored: tuple[Store, list[Entry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, entries = stored
    told: list[int] = []
    monkeypatch.setattr(FileSystem, "advise", lambda self, descriptor, offset, length: told.append(offset))
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 2 * WIDTH)
    store.expect(reversed(entries))
    extents = sorted(entry.extent for entry in entries if entry.extent is not None)
    assert told == [extent.offset for extent in extents[:2]]
    store.close()
    store.expect(entries)
    assert len(told) == 2


def test_a_flipped_byte_is_one_miss(stored: tuple[Store, list[Entry]]) -> None:
    store, entries = stored
    extent = entries[BAD].extent
    assert extent is not None
    store._scratch.write(type(extent)(extent.end - 1, 1), [b"\xff"])
    failed = store.read([(entry, Target()) for entry in entries])
    assert failed == [entries[BAD]]
    store.check()
    store.close()


def test_what_a_place_raises_is_raised(stored: tuple[Store, list[Entry]]) -> None:
    class Broken(Target):
        def places(self, name: str) -> Sequence[memoryview]:
            raise ZeroDivisionError

    store, entries = stored
    with pytest.raises(ZeroDivisionError):
        store.read([(entry, Broken() if number == BAD else Target()) for number, entry in enumerate(entries)])
    store.close()
