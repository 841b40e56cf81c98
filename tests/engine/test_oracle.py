"""The oracle that other tests trust: its arithmetic, and what it refuses to believe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.oracle import Fed, common, contains, costs, oracle_new, read_log

pytestmark = pytest.mark.exact


def log_file(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    file = tmp_path / "calls.jsonl"
    file.write_text("".join(json.dumps({"sequence": 1, "images": [], **entry}) + "\n" for entry in entries))
    return file


TWO_TURNS = (
    {"request": 1, "start": 0, "ids": [1, 2, 3]},
    {"request": 1, "start": 3, "ids": [4]},
    {"request": 1, "start": 4, "ids": [50]},
    {"request": 2, "start": 0, "ids": [1, 2, 3], "restored": "live"},
    {"request": 2, "start": 3, "ids": [4, 9, 9]},
    {"request": 2, "start": 6, "ids": [7]},
    {"request": 2, "start": 7, "ids": [51]},
)


def test_a_request_costs_what_its_calls_fed(tmp_path: Path) -> None:
    first, second = costs(read_log(log_file(tmp_path, *TWO_TURNS)), [4, 7])
    assert (first.prompt, first.prefilled, first.oracle, first.extra) == ([1, 2, 3, 4], 4, 4, 0)
    assert (second.prompt, second.prefilled, second.oracle) == ([1, 2, 3, 4, 9, 9, 7], 4, 3)
    assert second.extra == 1, "one token was fed before and prefilled again"


def test_the_oracle_prefills_one_token_at_least() -> None:
    assert oracle_new([1, 2], [[1, 2, 3]]) == 1
    assert oracle_new([1, 2], []) == 2
    assert oracle_new([1, 2, 3], [[5], [1, 2], [1]]) == 1


def test_all_earlier_sequences_count_not_only_the_last() -> None:
    log = [Fed(1, 1, calls=[(0, [1, 2, 3, 4]), (4, [5])]), Fed(2, 2, calls=[(0, [8]), (1, [9])])]
    log.append(Fed(3, 3, calls=[(0, [1, 2, 3, 4, 5]), (5, [6])]))
    assert costs(log, [5, 2, 6])[2].oracle == 1


def test_a_stopped_prefill_counts_as_fed(tmp_path: Path) -> None:
    entries = ({"request": 1, "start": 0, "ids": [1, 2, 3]}, {"request": 2, "start": 0, "ids": [1, 2, 3, 4]})
    (second,) = costs(read_log(log_file(tmp_path, *entries, {"request": 2, "start": 4, "ids": [5]})), [0, 5])
    assert second.oracle == 2


@pytest.mark.parametrize(
    ("entries", "tokens", "words"),
    [
        (({"request": 1, "start": 1, "ids": [1]},), [1], "the caches end at 0"),
        (({"request": 1, "start": 0, "ids": [1, 2, 3]},), [3], "no cut before the last token"),
        (({"request": 1, "start": 0, "ids": [1, 2, 3]},), [2], "no call ends at 2"),
        ((*TWO_TURNS[:2], {"request": 1, "start": 4, "ids": [5, 6]}), [4], "several ids at once"),
        (TWO_TURNS, [4], "2 requests in the log"),
        ((TWO_TURNS[0], TWO_TURNS[3] | {"request": 1}), [3], "restored after"),
    ],
)
def test_a_log_that_contradicts_itself_is_red(
    entries: tuple[dict[str, Any], ...], tokens: list[int], words: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=words):
        costs(read_log(log_file(tmp_path, *entries)), tokens)


def test_helpers() -> None:
    assert (common([1, 2], [1, 2, 3]), common([1], [2]), common([], [1])) == (2, 0, 0)
    assert contains([1, 2, 3], [2, 3])
    assert not contains([1, 2, 3], [1, 3])
    assert not contains([], [1])
