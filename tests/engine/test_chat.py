"""A conversation from the side of whoever holds it: what is kept, what is taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine import runner
from mlxchat.engine.chat import Chat
from mlxchat.engine.events import TextDelta
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import RequestOptions
from mlxchat.errors import EngineFailed
from support.oracle import read_log
from support.scripted import ScriptedEngine, ask, done, failed, model_folder, next_number, options, wait_until

pytestmark = pytest.mark.exact

ANY = RequestOptions()
SYSTEM = "The window, the layer, the block and the prefix. " * 20


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    folder = tmp_path_factory.mktemp("chat")
    made = ScriptedEngine(model_folder(folder / "model"), folder / "work")
    yield made
    made.close()
    assert made.notices == []


def texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.messages]


def stopped_at(engine: ScriptedEngine, chat: Chat, point: str, message: Message) -> Any:
    """Ask, hold at `point`, stop there, and return how the turn ended."""
    engine.gate.hold(f"{next_number()}.{point}")
    events: list[Any] = []
    thread = threading.Thread(target=lambda: events.extend(chat.ask(message, ANY)))
    thread.start()
    engine.gate.wait_held()
    chat.stop()
    thread.join(30)
    engine.gate.release()
    return done(events)


def test_question_and_answer_are_kept(engine: ScriptedEngine) -> None:
    engine.say("One.", "Two.")
    chat = engine.chat("Be short.")
    ask(chat, "a")
    ask(chat, "b")
    assert texts(chat) == ["Be short.", "a", "One.", "b", "Two."]
    assert [stats.turn for stats in chat.requests] == [1, 2]


def test_stopped_before_a_word_the_question_is_taken_back(engine: ScriptedEngine) -> None:
    chat = engine.chat(SYSTEM)
    for point in ("prefill.2", "token.1"):
        turn = stopped_at(engine, chat, point, user("a"))
        assert turn.finish_reason == "interrupted"
        assert turn.message.generated.ids == ()
        assert texts(chat) == [SYSTEM]
    engine.say("One.")
    turn = ask(chat, "a")
    assert turn.stats.prefill_tokens <= 4, "what was prefilled before the stop is still there"
    assert texts(chat) == [SYSTEM, "a", "One."]


def test_stopped_in_the_answer_the_part_is_kept(engine: ScriptedEngine) -> None:
    engine.say("One two three four.", "Five.")
    chat = engine.chat(SYSTEM)
    turn = stopped_at(engine, chat, "token.4", user("a"))
    assert turn.message.interrupted
    assert turn.stats.completion_tokens == 3
    assert "One two three four.".startswith(texts(chat)[2])
    assert texts(chat)[2]
    after = ask(chat, "b")
    assert after.stats.prefill_tokens <= after.stats.prompt_tokens - after.stats.common_prefix_tokens + 4
    assert after.stats.common_prefix_tokens > 200


def test_retry_replaces_the_answer(engine: ScriptedEngine) -> None:
    engine.say("One.", "Two.", "Three.")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    ask(chat, "b")
    again = done(list(chat.retry(ANY)))
    assert texts(chat)[1:] == ["a", "One.", "b", "Three."]
    assert again.stats.prefill_tokens <= 4


def test_a_retry_that_fails_or_is_stopped_brings_the_old_answer_back(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.say("One.")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    with monkeypatch.context() as patch:
        patch.setattr(runner.ModelRunner, "forward", broken)
        failed(list(chat.retry(ANY)))
    assert texts(chat)[1:] == ["a", "One."]
    engine.gate.hold(f"{next_number()}.token.1")
    retried = chat.retry(ANY)
    next(retried)
    engine.gate.wait_held()
    chat.stop()
    assert done(list(retried)).finish_reason == "interrupted"
    engine.gate.release()
    assert texts(chat)[1:] == ["a", "One."]


def test_nothing_to_retry_or_to_undo(engine: ScriptedEngine) -> None:
    chat = engine.chat("Be short.")
    assert list(chat.retry(ANY)) == []
    assert chat.undo() is None
    assert texts(chat) == ["Be short."]


def test_undo_gives_the_message_back_and_another_one_costs_only_itself(engine: ScriptedEngine) -> None:
    engine.say("One.", "Two.", "Three.")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    ask(chat, "something long that is taken back")
    message = chat.undo()
    assert message is not None
    assert message.text == "something long that is taken back"
    assert texts(chat)[1:] == ["a", "One."]
    other = ask(chat, "b")
    assert other.stats.divergence == "history_edited"
    assert other.stats.prefill_tokens <= other.stats.prompt_tokens - other.stats.common_prefix_tokens + 4
    assert other.stats.common_prefix_tokens > 200


def test_clear_begins_another_conversation(engine: ScriptedEngine) -> None:
    engine.say("One.", "Two.")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    chat.clear()
    assert (texts(chat), chat.requests) == ([SYSTEM], [])
    turn = ask(chat, "b")
    assert turn.stats.divergence == "first"
    assert turn.stats.cached_tokens > 200, "the system prompt is shared"


def broken(*_arguments: Any) -> Any:
    raise RuntimeError("a fault on purpose")


def test_an_error_keeps_the_conversation_and_the_engine(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.say("One.", "Never said.", "Two.")
    chat = engine.chat(SYSTEM)
    ask(chat, "a")
    with monkeypatch.context() as patch:
        patch.setattr(runner.ModelRunner, "forward", broken)
        ended = failed(list(chat.ask(user("b"), ANY)))
    assert isinstance(ended.error, EngineFailed)
    assert "a fault on purpose" in ended.error.message
    assert texts(chat)[1:] == ["a", "One."]
    assert ask(chat, "b").message.text == "Two."


def test_a_listener_that_leaves_stops_the_request(engine: ScriptedEngine) -> None:
    engine.say({"text": "word " * 400, "open": True}, "Yes.")
    chat = engine.chat("Be short.")
    events = chat.ask(user("a"), options(max_tokens=8000))
    for event in events:
        if isinstance(event, TextDelta):
            break
    events.close()  # type: ignore[attr-defined]
    assert texts(chat) == ["Be short."], "an unanswered message would stand in the next prompt"
    assert ask(chat, "b").message.text == "Yes."
    assert len(read_log(engine.log)[-2].ids) < 2000, "the request ran on after its listener had gone"


def test_stop_with_nothing_running(engine: ScriptedEngine) -> None:
    chat = engine.chat()
    chat.stop()
    engine.say("One.")
    assert ask(chat, "a").finish_reason == "stop"


@pytest.fixture
def closing(engine: ScriptedEngine, tmp_path: Path) -> ScriptedEngine:
    """An engine that ends within its test."""
    return ScriptedEngine(engine.model, tmp_path / "work", {"text": "word " * 400, "open": True})


def test_closing_ends_what_runs_as_if_stopped_and_refuses_what_waits(closing: ScriptedEngine) -> None:
    closing.gate.hold(f"{next_number()}.token.3")
    ends: dict[str, list[Any]] = {"running": [], "waiting": []}
    threads = [
        threading.Thread(target=lambda name=name: ends[name].extend(closing.chat().ask(user("a"), ANY)))
        for name in ends
    ]
    threads[0].start()
    closing.gate.wait_held()
    threads[1].start()
    wait_until(lambda: closing.engine._inbox.qsize() == 1, "the second request")
    threads.append(threading.Thread(target=closing.close))
    threads[2].start()
    wait_until(lambda: closing.engine._inbox.qsize() == 2, "the wish to close")
    closing.gate.release()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert done(ends["running"]).finish_reason == "interrupted"
    assert done(ends["running"]).stats.completion_tokens == 3
    assert "has stopped" in failed(ends["waiting"]).error.message


def test_closed_it_says_so(closing: ScriptedEngine) -> None:
    closing.close()
    closing.close()
    assert "has stopped" in failed(list(closing.chat().ask(user("a"), ANY))).error.message
    with pytest.raises(EngineFailed, match="has stopped"):
        closing.engine.call(lambda machinery: None)
