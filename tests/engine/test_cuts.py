"""Where prefill calls end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine.cuts import PREFILL_STEP, calls, cuts

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("length", "marks", "ends"),
    [
        (1, [], [1]),
        (2, [], [1, 2]),
        (10, [4], [4, 9, 10]),
        (10, [0, 10, 11, -3], [9, 10]),
        (10, [9, 9, 4, 4], [4, 9, 10]),
        (2048, [], [2047, 2048]),
        (2049, [], [2048, 2049]),
        (5000, [300], [300, 2048, 4096, 4999, 5000]),
    ],
)
def test_steps_marks_and_the_last_token(length: int, marks: list[int], ends: list[int]) -> None:
    assert cuts(length, marks) == ends


def test_what_is_left_from_a_position() -> None:
    ends = cuts(5000, [300])
    assert calls(0, ends) == [(0, 300), (300, 2048), (2048, 4096), (4096, 4999), (4999, 5000)]
    assert calls(300, ends)[0] == (300, 2048), "at a cut: exactly the calls of the uncached run"
    assert calls(512, ends)[0] == (512, 2048), "inside a call: the rest of that call"
    assert calls(4999, ends) == [(4999, 5000)]


@given(st.integers(1, 9000), st.sets(st.integers(0, 9000)), st.data())
def test_calls_tile_the_prompt_and_none_is_longer_than_a_step(
    length: int, marks: set[int], data: st.DataObject
) -> None:
    ends = cuts(length, marks)
    start = data.draw(st.integers(0, length - 1))
    left = calls(start, ends)
    assert [first for first, _ in left] == [start, *(end for _, end in left[:-1])]
    assert left[-1][1] == length
    assert left[-1][0] == max(start, length - 1) or length == 1
    assert all(0 < end - first <= PREFILL_STEP for first, end in left)
    assert [end for _, end in left] == [end for end in ends if end > start], "the start moves no later cut"
