"""Steps in the conversation tree on real weights: each prefills what is new, counted by the call log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import Event, TurnDone
from mlxchat.engine.messages import user
from mlxchat.engine.models import ModelFolder
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from support.oracle import costs, read_log

pytestmark = [pytest.mark.real, pytest.mark.slow]

SYSTEM = "You are a patient teacher of geography who answers briefly and names no more than was asked for."
OPTIONS = RequestOptions(SamplingOptions(temp=0.0, max_tokens=20), ThinkingOptions(budget=10))


def prompt_tokens(events: Iterable[Event]) -> int:
    done = list(events)[-1]
    assert isinstance(done, TurnDone), done
    return done.stats.prompt_tokens


@pytest.mark.parametrize("drop_live", ["0", "1"])
@pytest.mark.parametrize("model", ["smollm2_folder", "gemma3_folder"])
def test_each_step_costs_what_is_new(
    model: str, drop_live: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: ModelFolder = request.getfixturevalue(model)
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("MLXCHAT_TEST_CALL_LOG", str(log))
    monkeypatch.setenv("MLXCHAT_TEST_DROP_LIVE", drop_live)
    cache = CacheOptions(directory=tmp_path / "kv", budget_bytes=1 << 30)
    engine = Engine.start(EngineOptions(str(folder.path), "chatml-think", cache=cache), lambda line: None)
    try:
        tokens = list(steps(engine))
    finally:
        engine.close()
    extra = [one.extra for one in costs(read_log(log), tokens)]
    assert len(extra) == 9
    assert max(extra) <= 4, extra


def steps(engine: Engine) -> Iterable[int]:
    """Two turns; undo and other words; retry; an edit of the first message; back and on; a sibling; a copy."""
    chat = Chat(engine, SYSTEM)
    yield prompt_tokens(chat.ask(user("Name three rivers of Europe, and the seas they flow into."), OPTIONS))
    yield prompt_tokens(chat.ask(user("Which of them is the longest?"), OPTIONS))
    first = len(chat.tree)
    chat.undo()
    yield prompt_tokens(chat.ask(user("Through which countries does the first one flow?"), OPTIONS))
    yield prompt_tokens(chat.retry(OPTIONS))
    chat.undo(2)
    yield prompt_tokens(chat.ask(user("Say which lakes lie in the Alps, and how deep each of them is."), OPTIONS))
    chat.go_to(first)
    yield prompt_tokens(chat.ask(user("Write one short sentence about a boat on it."), OPTIONS))
    sibling = Chat(engine, SYSTEM)
    yield prompt_tokens(sibling.ask(user("Explain why the sea is salt, while no river is."), OPTIONS))
    copy = Chat(engine, SYSTEM, [message for message in chat.messages if message.role != "system"], day=chat.day)
    yield prompt_tokens(copy.ask(user("And who would row it?"), OPTIONS))
    chat.undo(2)
    yield prompt_tokens(chat.ask(user("Give the names of two bridges instead."), OPTIONS))
