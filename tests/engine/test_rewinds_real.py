"""Real weights: what is said with the cache is what is said without it, token for token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone
from mlxchat.engine.messages import user
from mlxchat.engine.models import ModelFolder
from mlxchat.engine.options import (
    CacheOptions,
    EngineOptions,
    RequestOptions,
    SamplingOptions,
    ThinkingOptions,
)

pytestmark = [pytest.mark.real, pytest.mark.slow]

ASKED = (
    "Name three rivers of Europe, and say of each through which countries it flows on its way to the sea.",
    "Which of them is the longest?",
    "Write one short sentence about a boat on it.",
)
GREEDY = RequestOptions(SamplingOptions(temp=0.0, max_tokens=32), ThinkingOptions(budget=16))


def said(folder: ModelFolder, directory: Path, *, cached: bool) -> Iterator[TurnDone]:
    cache = CacheOptions(enabled=cached, directory=directory, budget_bytes=1 << 30)
    engine = Engine.start(EngineOptions(str(folder.path), "chatml-think", cache=cache), lambda line: None)
    try:
        chat = Chat(engine, "You are a patient teacher of geography who answers briefly.")
        for text in ASKED:
            done = list(chat.ask(user(text), GREEDY))[-1]
            assert isinstance(done, TurnDone), done
            yield done
    finally:
        engine.close()


@pytest.mark.parametrize("drop_live", [False, True])
@pytest.mark.parametrize("model", ["smollm2_folder", "gemma3_folder"])
def test_greedy_tokens_are_those_of_the_uncached_run(
    model: str, drop_live: bool, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(model)
    monkeypatch.setenv("MLXCHAT_TEST_DROP_LIVE", "1" if drop_live else "0")
    without = list(said(folder, tmp_path, cached=False))
    with_it = list(said(folder, tmp_path, cached=True))
    for plain, restored in zip(without, with_it, strict=True):
        assert plain.message.generated == restored.message.generated
        assert plain.message.reasoning
    assert [one.stats.restore_kind for one in without] == ["none"] * 3
    assert [one.stats.restore_kind for one in with_it] == ["none", *["anchor" if drop_live else "live"] * 2]
    for one in with_it[1:]:
        assert one.stats.divergence == "reasoning_dropped"
        assert one.stats.cached_tokens >= with_it[0].stats.prompt_tokens - 8  # less the scaffold that opens the thought
