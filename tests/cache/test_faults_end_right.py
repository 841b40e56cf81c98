"""Every fault of the disk, through the store's seam, in the middle of a conversation: the logits stay those of a run
from nothing, bit for bit."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlxchat.cache import reader
from mlxchat.cache.keys import namespace_key
from mlxchat.cache.store import Store
from support.driver import Driver
from support.kvstore import FaultyFiles, fill_unchecked, io_error

pytestmark = pytest.mark.exact

KINDS = ("gemma3_text", "qwen3_5")  # a window, and a recurrent state, beside global layers
PROMPT, REPLY, MORE = 700, 8, 90

Spoil = Callable[[Driver, FaultyFiles], None]


def write_error(driver: Driver, files: FaultyFiles) -> None:
    files.write_error = io_error()


def no_space(driver: Driver, files: FaultyFiles) -> None:
    files.write_room = 0


def no_space_within_a_record(driver: Driver, files: FaultyFiles) -> None:
    files.write_room, files.most_at_once = 5000, 512


def no_room_to_grow(driver: Driver, files: FaultyFiles) -> None:
    files.truncate_error = io_error(errno.ENOSPC)


def writer_dies(driver: Driver, files: FaultyFiles) -> None:
    files.write_crash = MemoryError("a fault on purpose")


def read_error(driver: Driver, files: FaultyFiles) -> None:
    files.read_error = io_error()


def short_read(driver: Driver, files: FaultyFiles) -> None:
    files.end_at = 4000


def reads_in_small_pieces(driver: Driver, files: FaultyFiles) -> None:
    files.most_at_once = 1000


def flipped(driver: Driver, files: FaultyFiles) -> None:
    for entry in list(store_of(driver)._index):
        overwrite(files, entry.extent.offset + entry.nbytes // 2, b"\x5a")


def truncated(driver: Driver, files: FaultyFiles) -> None:
    entry = max(store_of(driver)._index, key=lambda entry: entry.extent)
    files.end_at = entry.extent.offset + entry.nbytes // 3


def swapped(driver: Driver, files: FaultyFiles) -> None:
    """Each record's bytes in another one's place, of the same size."""
    entries = sorted(store_of(driver)._index, key=lambda entry: (entry.nbytes, entry.extent))
    for one, other in zip(entries[::2], entries[1::2], strict=False):
        if one.nbytes == other.nbytes:
            first, second = read_raw(files, one.extent), read_raw(files, other.extent)
            overwrite(files, one.extent.offset, second)
            overwrite(files, other.extent.offset, first)


def other_namespace(driver: Driver, files: FaultyFiles) -> None:
    """Everything that is stored turns out to be of other weights."""
    alien = namespace_key({"weights": "others"})
    for entry in list(store_of(driver)._index):
        overwrite(files, entry.extent.offset + 56, alien)


def everything_evicted(driver: Driver, files: FaultyFiles) -> None:
    for entries in (sequence.pins for sequence in driver.sequences.values()):
        while entries:
            store_of(driver).unpin(entries.popleft())
    store_of(driver).shrink(0)


def a_middle_record_gone(driver: Driver, files: FaultyFiles) -> None:
    for entry in [entry for entry in store_of(driver)._index if entry.header.position == 512]:
        store_of(driver).forget(entry.header.place, entry.header.group)


FAULTS: dict[str, Spoil] = {
    "write error": write_error,
    "no space": no_space,
    "no space within a record": no_space_within_a_record,
    "no room to grow": no_room_to_grow,
    "writer dies": writer_dies,
    "read error": read_error,
    "short read": short_read,
    "reads in small pieces": reads_in_small_pieces,
    "flipped": flipped,
    "truncated": truncated,
    "swapped": swapped,
    "other namespace": other_namespace,
    "everything evicted": everything_evicted,
    "a middle record gone": a_middle_record_gone,
}


def read_raw(files: FaultyFiles, extent: Any) -> bytes:
    return os.pread(files.descriptor, extent.length, extent.offset)


def overwrite(files: FaultyFiles, offset: int, data: bytes) -> None:
    os.pwrite(files.descriptor, data, offset)


def store_of(driver: Driver) -> Store:
    assert driver.store is not None
    return driver.store


def turns(driver: Driver, draw: Callable[[int], list[int]], between: Callable[[], None]) -> list[np.ndarray]:
    """Two turns of one conversation, its memory dropped and `between` done in the middle; the logits of each."""
    prompt, reply, more = draw(PROMPT), draw(REPLY), draw(MORE)
    _, first = driver.turn("a", prompt, reply, {PROMPT - 1: "stable_user"})
    if driver.store is not None:
        driver.drop_live("a")
        driver.store.drain(120)
    between()
    whole = prompt + reply + more
    _, second = driver.turn("a", whole, draw(REPLY), {len(whole) - 1: "stable_user"}, extra_cut=PROMPT + REPLY)
    return [first, second]


def ends_right(kind: str, spoil: Spoil, model: Any, tmp_path: Path) -> Driver:
    def draw() -> Callable[[int], list[int]]:
        rng = np.random.default_rng(6)
        return lambda count: rng.integers(5, 1000, count).tolist()

    files = FaultyFiles()
    cached = Driver(model(kind), tmp_path, files=files)
    try:
        right = turns(Driver(model(kind), None, off=True), draw(), lambda: None)
        got = turns(cached, draw(), lambda: spoil(cached, files))
        assert np.array_equal(got[0], right[0])
        assert np.array_equal(got[1], right[1])
        files.__init__()  # type: ignore[misc]  # the disk is well again
        assert store_of(cached).stats().file_bytes <= 1 << 30
    finally:
        files.truncate_error = files.write_error = files.write_crash = None
        cached.close()
    return cached


def each_fault() -> list[Any]:
    """With a window each; with a recurrent state, in make test, those that meet its record."""
    meets_state = ("no space", "read error", "flipped", "a middle record gone")
    return [
        pytest.param(kind, fault, marks=() if kind == KINDS[0] or fault in meets_state else pytest.mark.slow)
        for fault in FAULTS
        for kind in KINDS
    ]


@pytest.mark.parametrize(("kind", "fault"), each_fault())
def test_the_answer_is_right(kind: str, fault: str, model: Any, tmp_path: Path) -> None:
    driver = ends_right(kind, FAULTS[fault], model, tmp_path)
    assert len(driver.troubles) <= 1


@pytest.mark.parametrize("fault", ["flipped", "swapped"])
def test_planted_records_that_nobody_verifies_are_wrong_answers(
    fault: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believe(entry: Any, record: memoryview) -> dict[str, memoryview]:
        start, tensors = entry.nbytes - entry.header.payload_bytes, {}
        for spec in entry.header.tensors:
            tensors[spec.name] = record[start : start + spec.nbytes]
            start += spec.nbytes
        return tensors

    monkeypatch.setattr(reader, "verified", believe)
    monkeypatch.setattr(reader.Reader, "_read_in_place", fill_unchecked)
    with pytest.raises(AssertionError):
        ends_right("gemma3_text", FAULTS[fault], model, tmp_path)
