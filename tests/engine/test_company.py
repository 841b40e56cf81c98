"""Chats in changing company, cancelled, evicted and restored at random: what each says is what it would say alone.

An answer that took one number from a neighbour's rows, states or draws would go another way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.cache.together import RowsTogether, StatesTogether
from mlxchat.engine.events import ReasoningDelta, TextDelta, TurnDone
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import CacheOptions
from mlxchat.engine.request import Request
from support.at_once import alone, asked, end_of, ids_of
from support.scripted import ScriptedEngine, model_folder

pytestmark = pytest.mark.exact

CANARIES = ("quartz", "velvet", "thistle", "magnet", "lagoon", "ember", "walnut", "sextant")
BUDGET = 3 << 20
"""Bytes of the store: a few chats' worth, so that restores fall short."""


@pytest.fixture(params=["qwen3", pytest.param("qwen3_5", marks=pytest.mark.slow)])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ScriptedEngine, ScriptedEngine]]:
    folder = model_folder(tmp_path / "model", request.param)
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=BUDGET)
    made = [
        ScriptedEngine(folder, tmp_path / "many", cache=cache, parallel=4),
        ScriptedEngine(folder, tmp_path / "one", cache=CacheOptions(enabled=False)),
    ]
    for one in made:
        one.unscript()
    yield made[0], made[1]
    made[0].check()
    for one in made:
        one.close()


class Talk:
    """One chat: what was said in it, and the request that is under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.request: Request | None = None

    def ask(self, rng: random.Random, turn: int) -> Request:
        words = " ".join(rng.choices([self.name, "and", "again"], k=rng.choice([3, 20, 90])))
        self.messages.append(user(f"{self.name} {turn}: {words}"))
        *before, last = self.messages
        self.request = asked(self.name, last, *before, max_tokens=rng.randint(1, 24))
        return self.request


def company(many: ScriptedEngine, single: ScriptedEngine, turns: int, seed: int) -> Iterator[bool]:
    """For each answer whether it is that of the chat alone, or the beginning of it where it was cancelled."""
    rng = random.Random(seed)
    talks = [Talk(name) for name in CANARIES]
    for turn in range(turns):
        rng.shuffle(talks)
        for talk in talks:
            many.engine.submit(talk.ask(rng, turn))
        cancelled = rng.sample(talks, 2)
        for talk in cancelled:
            cancel_after(talk, rng.randint(1, 4))
        for talk in talks:
            assert talk.request is not None
            done = end_of(talk.request)
            *before, last = talk.messages
            limit = talk.request.options.sampling.max_tokens
            wanted = ids_of(alone(single.engine, asked("alone", last, *before, max_tokens=limit))[0])
            got = ids_of(done)
            yield got == (wanted[: len(got)] if done.finish_reason == "interrupted" else wanted)
            talk.messages.append(done.message)


def cancel_after(talk: Talk, pieces: int) -> None:
    """Stop the request once it has said so many pieces; its end stays in the queue."""
    request = talk.request
    assert request is not None
    while pieces:
        event = request.events.get(timeout=120)
        pieces -= isinstance(event, TextDelta | ReasoningDelta)
        if isinstance(event, TurnDone):
            request.events.put(event)
            return
    request.cancelled.set()


def test_nobody_hears_of_anybody(engines: tuple[ScriptedEngine, ScriptedEngine]) -> None:
    assert all(company(*engines, turns=2, seed=1))


@pytest.mark.slow
def test_nobody_hears_of_anybody_in_long_chats(engines: tuple[ScriptedEngine, ScriptedEngine]) -> None:
    assert all(company(*engines, turns=6, seed=2))
    report = engines[0].engine.cache_report().store
    assert report is not None
    assert report.evictions > 0


def test_planted_what_a_neighbour_just_left_is_seen(
    engines: tuple[ScriptedEngine, ScriptedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and states go to the next sequence's caches. With qwen3_5, rows alone change no token of these chats."""
    append, scatter = RowsTogether.update_and_fetch, StatesTogether.scatter

    def crossed(self: StatesTogether) -> None:
        self.whole.cache = [None if array is None else array[::-1] for array in self.whole.cache]
        scatter(self)

    monkeypatch.setattr(
        RowsTogether, "update_and_fetch", lambda self, keys, values: append(self, keys[::-1], values[::-1])
    )
    monkeypatch.setattr(StatesTogether, "scatter", crossed)
    assert not all(company(*engines, turns=1, seed=3))
