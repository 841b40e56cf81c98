"""The line of numbers after a turn."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import get_args

import pytest
from mlxchat.cli.stats_line import REASONS, details, print_stats, seconds, size, speed
from mlxchat.cli.streams import Streams
from mlxchat.engine.stats import RequestStats, ShortfallReason

pytestmark = pytest.mark.plain

STATS = RequestStats(
    prompt_tokens=4210,
    cached_tokens=4096,
    prefill_tokens=114,
    rewind_tokens=312,
    ttft_ms=410,
    decode_tokens_per_s=62.3,
    context_tokens=246,
    context_limit=2048,
)


def stats_line(stats: RequestStats) -> str:
    """What `print_stats` prints where lines may be of any length."""
    stderr = io.StringIO()
    print_stats(stats, Streams(stderr=stderr))
    return stderr.getvalue().removesuffix("\n")


def test_the_line() -> None:
    assert stats_line(STATS) == (
        "prompt 4,210 (4,096 cached, 114 new) · rewound 312 · ttft 0.41 s · 62 tok/s · ctx 12 %"
    )


def test_what_is_nothing_is_left_out() -> None:
    stats = replace(STATS, rewind_tokens=0, decode_tokens_per_s=0.0, context_limit=0)
    assert stats_line(stats) == "prompt 4,210 (4,096 cached, 114 new) · ttft 0.41 s"


def test_tokens_prefilled_ahead_are_shown_apart() -> None:
    line = stats_line(replace(STATS, prefill_tokens=14, idle_prefill_tokens=60, typeahead_prefill_tokens=40))
    assert "(4,096 cached, 14 new, 100 ahead of time)" in line


@pytest.mark.parametrize("reason", [reason for reason in get_args(ShortfallReason) if reason != "none"])
def test_why_not_more_is_said_in_words(reason: ShortfallReason) -> None:
    line = stats_line(replace(STATS, shortfall_reason=reason))
    assert line.endswith(f" · not more reused: {REASONS[reason]}")
    assert REASONS[reason]
    assert "_" not in REASONS[reason]


def test_every_reason_has_words() -> None:
    assert set(REASONS) == set(get_args(ShortfallReason))


def test_units() -> None:
    assert [seconds(ms) for ms in (410, 12_340, 125_000)] == ["0.41 s", "12.3 s", "125 s"]
    assert [speed(rate) for rate in (9.44, 62.3, 1204.0)] == ["9.4", "62", "1,204"]
    assert [size(n) for n in (312, 4_100_000, 2 * 10**9, 1500)] == ["312 B", "4.1 MB", "2.0 GB", "1.5 kB"]


def test_details_say_where_the_tokens_came_from() -> None:
    lines = details(replace(STATS, cached_live_tokens=4000, cached_disk_tokens=96, restore_kind="anchor"))
    assert "4,000 from memory, 96 from disk (anchor" in lines[0]
