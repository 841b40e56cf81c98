"""The process's hit rate: what counts as reusable, why it was missed, and the one warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.engine.events import Notice
from mlxchat.engine.hit_rate import HitRate, MissReason, TurnReuse, reuse_of
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, RequestOptions
from mlxchat.engine.stats import Divergence, RequestStats, ShortfallReason
from support.scripted import ScriptedEngine, done, model_folder

pytestmark = pytest.mark.exact


def request(
    prompt: int, common: int, cached: int, divergence: Divergence, reason: ShortfallReason = "none"
) -> RequestStats:
    return RequestStats(
        prompt_tokens=prompt,
        common_prefix_tokens=common,
        cached_tokens=cached,
        divergence=divergence,
        shortfall_reason=reason,
    )


@pytest.mark.parametrize(
    ("stats", "before", "over_budget", "reusable", "missed", "reason"),
    [
        (request(100, 0, 0, "first"), 0, False, 0, 0, None),
        (request(100, 60, 60, "first"), 0, False, 60, 0, None),
        (request(500, 300, 300, "append"), 300, False, 300, 0, None),
        (request(500, 280, 280, "reasoning_dropped"), 280, False, 280, 0, None),
        (request(500, 300, 100, "append", "evicted"), 300, False, 300, 200, "evicted"),
        (request(500, 300, 100, "append", "evicted"), 300, True, 300, 200, "budget"),
        (request(500, 300, 256, "append", "no_anchor"), 300, False, 300, 44, "no_anchor"),
        (request(500, 300, 0, "append", "off"), 300, False, 300, 300, "off"),
        (request(500, 90, 90, "history_edited"), 400, False, 90, 0, None),
        (request(500, 90, 90, "retokenized"), 400, False, 400, 310, "retokenized"),
        (request(500, 10, 10, "system_or_tools_changed"), 400, False, 400, 390, "tools_changed"),
        (request(100, 99, 99, "append"), 400, False, 99, 0, None),
    ],
)
def test_what_was_reusable_and_why_it_was_missed(
    stats: RequestStats, before: int, over_budget: bool, reusable: int, missed: int, reason: MissReason | None
) -> None:
    turn = reuse_of(stats, before, "tools_changed", over_budget=over_budget)
    assert (turn.reusable, turn.missed, turn.reason) == (reusable, missed, reason)


def bad(reason: MissReason = "evicted", cached: int = 100) -> TurnReuse:
    return TurnReuse(1000, 900, cached, reason)


GOOD = TurnReuse(1000, 900, 900, None)


def test_one_warning_once_ten_turns_are_bad() -> None:
    rate = HitRate()
    said = [rate.add(bad()) for _ in range(30)]
    assert said[:9] == [None] * 9
    assert said[9] == (
        "only 11% of the reusable tokens of the last 10 turns was reused: "
        "older checkpoints made room for newer ones; a larger --cache-bytes keeps them"
    )
    assert said[10:] == [None] * 20
    assert rate.missed == {"evicted": 30 * 800}


def test_no_warning_while_the_rate_holds() -> None:
    rate = HitRate()
    assert [rate.add(one) for one in [GOOD] * 50] == [None] * 50
    assert [rate.add(bad()) for _ in range(2)] == [None, None], "80 % of ten turns, and no less, are good"
    assert "was reused" in str(rate.add(bad()))


def test_the_rate_is_weighted_by_tokens() -> None:
    rate = HitRate()
    small = TurnReuse(20, 10, 0, "no_anchor")
    assert [rate.add(one) for one in [GOOD, *[small] * 9] * 3] == [None] * 30
    assert rate.recent_rate == pytest.approx(1 - 90 / 990)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("budget", "--cache-bytes is too small"),
        ("retokenized", "other tokens"),
        ("tools_changed", "the tools change"),
        ("system_changed", "the system prompt changes"),
        ("template_changed", "the template renders"),
        ("io_error", "--cache-dir"),
    ],
)
def test_the_diagnosis_is_that_of_most_missed_tokens(reason: MissReason, words: str) -> None:
    rate = HitRate()
    said = [rate.add(bad(reason) if turn % 2 else bad("no_anchor", 890)) for turn in range(10)]
    assert words in str(said[-1])


@pytest.mark.parametrize("reason", ["off", "unsupported_class"])
def test_what_was_told_before_is_not_warned_of(reason: MissReason) -> None:
    rate = HitRate()
    assert [rate.add(bad(reason)) for _ in range(20)] == [None] * 20


def test_nothing_asked_is_no_rate() -> None:
    assert HitRate().recent_rate is None
    assert HitRate().to_json()["hit_rate"] is None


def test_an_engine_whose_tools_change_warns_once(tmp_path: Path) -> None:
    engine = ScriptedEngine(model_folder(tmp_path / "model"), tmp_path / "work", "Yes.")
    try:
        chat, notices = engine.chat("Be brief. " * 30), []
        for turn in range(12):
            tool = {"type": "function", "function": {"name": f"tool_{turn}", "parameters": {}}}
            events = list(chat.ask(user("Go on. " * 20), RequestOptions(tools=(tool,))))
            done(events)
            notices += [event.text for event in events if isinstance(event, Notice)]
        report = engine.engine.cache_report()
    finally:
        engine.close()
    assert len(notices) == 1
    assert "the tools change between turns" in notices[0]
    assert set(report.rate.missed) == {"tools_changed"}
    assert report.rate.turns == 12


def test_an_engine_in_too_small_a_budget_says_so(tmp_path: Path) -> None:
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=20_000)
    engine = ScriptedEngine(model_folder(tmp_path / "model"), tmp_path / "work", "Yes.", cache=cache, drop_live="1")
    try:
        chat, notices = engine.chat("Be brief. " * 70), []
        for _ in range(12):
            events = list(chat.ask(user("Go on."), RequestOptions()))
            done(events)
            notices += [event.text for event in events if isinstance(event, Notice)]
    finally:
        engine.close()
    assert len(notices) == 1
    assert "--cache-bytes" in notices[0]
