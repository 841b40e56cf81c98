"""Whatever fails ends one turn, in words, and the engine lives on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mlxchat.cache.live import LiveCache
from mlxchat.engine import reuse, runner, turn
from mlxchat.engine.messages import user
from mlxchat.engine.options import RequestOptions
from mlxchat.errors import EngineFailed
from support.oracle import costs, read_log
from support.scripted import ScriptedEngine, ask, failed, model_folder

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 40


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    folder = tmp_path_factory.mktemp("failures")
    made = ScriptedEngine(model_folder(folder / "model"), folder / "work", "One two three four five.")
    yield made
    made.close()
    assert made.notices == []


def on_call(number: int, method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, but its `number`-th call fails."""
    calls = 0

    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise RuntimeError("a fault on purpose")
        return method(*arguments, **keywords)

    return wrapped


FAULTS = {
    "rendering": (turn.TurnBuilder, "start", 1),
    "restoring": (reuse.Reuse, "begin", 1),
    "after restoring": (turn.TurnBuilder, "note_prompt", 1),
    "the first call": (runner.ModelRunner, "forward", 1),
    "a later prefill call": (runner.ModelRunner, "forward", 3),
    "a checkpoint": (reuse.Reuse, "record_prefill", 2),
    "decode": (runner.ModelRunner, "forward", 7),
    "a decode checkpoint": (reuse.Reuse, "record_decode", 2),
    "the message": (turn.TurnBuilder, "finish", 1),
    "the notes": (reuse.Reuse, "end", 1),
    "the delivery": (turn.TurnBuilder, "deliver", 1),
}


@pytest.mark.parametrize("place", FAULTS)
def test_a_failure_ends_one_turn(engine: ScriptedEngine, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, number = FAULTS[place]
    chat = engine.chat(f"{place}. {SYSTEM}")
    ask(chat, "a")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, on_call(number, getattr(owner, name)))
        ended = failed(list(chat.ask(user(f"b {SYSTEM}"), RequestOptions())))
    assert isinstance(ended.error, EngineFailed)
    assert "a fault on purpose" in ended.error.message
    assert ended.error.hint
    assert [m.role for m in chat.messages] == ["system", "user", "assistant"]
    engine.check()
    after = ask(chat, "c")
    assert after.finish_reason == "stop"
    assert after.stats.cached_tokens >= after.stats.common_prefix_tokens - 255 > 0
    engine.check()


def test_what_was_said_before_a_failure_is_told(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = engine.chat()
    forward = runner.ModelRunner.forward
    monkeypatch.setattr(runner.ModelRunner, "forward", on_call(8, forward))
    ended = failed(list(chat.ask(user("a"), RequestOptions())))
    assert ended.partial
    assert "One two three four five.".startswith(ended.partial)


def test_planted_a_failure_that_keeps_a_damaged_cache_is_seen(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are there, their ids are not noted: the next turn trips over it if the caches were not let go."""
    chat = engine.chat(f"planted. {SYSTEM}")
    ask(chat, "a")
    with monkeypatch.context() as patch:
        patch.setattr(reuse.Reuse, "abandon", lambda self, sequence: None)
        patch.setattr(LiveCache, "append", on_call(5, LiveCache.append))
        failed(list(chat.ask(user("b"), RequestOptions())))
    with pytest.raises(AssertionError, match="stands at"):
        engine.check()
    engine.engine.call(lambda m: m.loop.sequences.clear())


def test_a_failed_prefill_counts_as_fed(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = engine.chat(f"counted. {SYSTEM}")
    message = user(f"b {SYSTEM}")
    with monkeypatch.context() as patch:
        patch.setattr(runner.ModelRunner, "forward", on_call(4, runner.ModelRunner.forward))
        failed(list(chat.ask(message, RequestOptions())))
    after = ask(chat, message.text)
    log = read_log(engine.log)
    found = costs(log, [0] * (len(log) - 1) + [after.stats.prompt_tokens])[0]
    assert found.extra <= 255
    assert after.stats.common_prefix_tokens >= after.stats.cached_tokens
