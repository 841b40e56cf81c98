"""Damage seen from end to end, conversations longer than the states in memory, and a date that moves on."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mlxchat.engine import beginning, rendering
from mlxchat.engine.messages import user
from support import faults
from support.rewind_rig import Rig, Rigs
from support.rewind_talk import Talk, fresh, within
from support.rewind_words import thought
from support.tiny_tokenizer import Family

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("same_words")]


def damaged(rig: Rig, plant: Callable[[], None]) -> bool:
    """Whether a turn that goes back past reasoning, from records, gives other bits than the uncached run."""
    talk = Talk(rig)
    talk.ask(user(fresh(150)))
    plant()
    asked = rig.ask(talk.chat, user(fresh(8)), thought(rig.family, fresh(4), fresh(4)), talk.options, sound=False)
    assert asked.stats.cached_disk_tokens > 128
    return not asked.equal()


PLANTED = [
    ("qwen3", "qwen3", faults.off_by_one),
    ("qwen3", "qwen3", faults.row_short),
    ("qwen3", "qwen3", faults.tail_short_by_one),
    ("gemma3_text", "qwen3", faults.window_row_missing),
    ("gemma3_text", "qwen3", faults.ring_order),
    ("gpt_oss", "gpt_oss", faults.window_row_missing),
    ("qwen3_5", "qwen36", faults.state_zeroed),
    ("qwen3_5", "qwen36", faults.state_of_another_position),
]


@pytest.mark.parametrize(("kind", "family", "plant"), PLANTED)
def test_a_planted_fault_is_seen_from_end_to_end(
    kind: str, family: Family, plant: Callable[[Any], None], rigs: Rigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs(kind, family, True)
    assert not damaged(rig, lambda: None)
    assert damaged(rig, lambda: plant(monkeypatch))


def test_an_extra_cut_is_seen_in_the_calls(rigs: Rigs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts that only the cached engine makes turn the comparison of call shapes red."""
    rig = rigs("qwen3", "qwen3", True)
    talk = Talk(rig)
    talk.ask()
    real = beginning.calls
    halves = lambda start, ends: [c for a, b in real(start, ends) for c in ((a, a + 1), (a + 1, b)) if c[0] < c[1]]  # noqa: E731
    monkeypatch.setattr(beginning, "calls", lambda start, ends: halves(start, ends) if start else real(start, ends))
    with pytest.raises(AssertionError):
        talk.ask()


@pytest.mark.parametrize("drop_live", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_conversation_longer_than_the_states_in_memory(drop_live: bool, rigs: Rigs) -> None:
    """States in memory are few: the recent turns and the system prompt stay within reach, an old turn may not."""
    rig = rigs("qwen3_5", "qwen36", drop_live)
    talk = Talk(rig)
    asked = [talk.ask() for _ in range(8)]
    for one in asked[1:]:
        within(one)
    live = rig.cached.machinery.loop.sequences[talk.chat._name].live
    assert (live is None) == drop_live
    assert live is None or len(live.states) <= 8
    whole = list(talk.chat.messages)
    for back in (1, 2, 4):
        talk.chat.messages[:] = whole[: len(whole) - 2 * back]
        within(talk.ask())
    within(Talk(rig).ask())
    talk.chat.messages[:] = whole[:3]
    old = talk.ask()  # how far this comes is the ledger's to say
    assert old.stats.cached_tokens > 0


def test_the_date_of_a_conversation_stays(rigs: Rigs, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-oss names the day in its system turn: midnight must not cost the whole conversation."""
    rig = rigs("gpt_oss", "gpt_oss", True)
    talk = Talk(rig)
    first = talk.ask()

    class Tomorrow(datetime.date):
        @classmethod
        def today(cls) -> Tomorrow:
            return cls.fromordinal(datetime.date.today().toordinal() + 1)

    monkeypatch.setattr(rendering, "Date", Tomorrow)
    asked = within(talk.ask())
    assert asked.stats.cached_tokens >= first.stats.prompt_tokens - 1
    assert np.array_equal(asked.prompt.ids[:40], first.prompt.ids[:40])
