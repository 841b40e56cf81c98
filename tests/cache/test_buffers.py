"""The buffers that records wait in come back, but never while someone still refers to them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from mlxchat.cache.buffers import BufferPool

pytestmark = pytest.mark.plain

MIB = 1 << 20


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_is_used_again_once_nobody_refers_to_it() -> None:
    pool = BufferPool(8 * MIB)
    first = pool.take(MIB)
    where = address(first)
    del first
    assert pool.idle_bytes == MIB
    assert address(pool.take(MIB - 5)) == where


def test_a_part_keeps_the_whole_from_coming_back() -> None:
    pool = BufferPool(8 * MIB)
    whole = pool.take(MIB)
    part = whole[100:200].data
    part[:] = b"x" * 100
    del whole
    other = pool.take(MIB)
    other[:] = 0
    assert bytes(part) == b"x" * 100
    del part
    assert pool.idle_bytes == MIB


def test_no_more_lies_idle_than_is_allowed() -> None:
    pool = BufferPool(2 * MIB)
    taken = [pool.take(MIB) for _ in range(5)]
    taken.clear()
    assert pool.idle_bytes == 2 * MIB
    pool.clear()
    assert pool.idle_bytes == 0


def test_a_small_request_doesnt_take_a_large_buffer() -> None:
    pool = BufferPool(16 * MIB)
    del_me = pool.take(8 * MIB)
    del del_me
    small = pool.take(MIB)
    assert small.nbytes == MIB
    assert pool.idle_bytes == 8 * MIB


def test_many_threads_never_share_a_buffer() -> None:
    pool, clashes = BufferPool(4 * MIB), []

    def work(number: int) -> None:
        for _ in range(50):
            mine = pool.take(MIB // 2)
            mine[:] = number
            if not (mine == number).all():
                clashes.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
