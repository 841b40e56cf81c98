"""Turn after turn on the scripted model: what is fed, how replies end, and that each turn costs what is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mlxchat.cache.live import LiveCache
from mlxchat.engine.decoding import Decoder
from mlxchat.engine.events import PrefillProgress
from mlxchat.engine.messages import user
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.engine.stops import StopStrings
from mlxchat.errors import ContextExceeded, UsageError
from support.oracle import Cost, Fed, contains, costs, read_log
from support.scripted import ScriptedEngine, ask, done, failed, model_folder, options, shown

pytestmark = pytest.mark.exact

LONG = "The window, the layer, the block and the prefix. " * 20
THOUGHT = "<think>\nThe user asks a question about the cache.\n</think>\n\nParis is the capital."


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    folder = tmp_path_factory.mktemp("turns")
    made = ScriptedEngine(model_folder(folder / "model"), folder / "work")
    yield made
    made.close()
    assert made.notices == []


@pytest.fixture(autouse=True)
def books(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the store's and the live caches' books are right."""
    yield
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").check()


def since(engine: ScriptedEngine, before: int) -> list[Fed]:
    return read_log(engine.log)[before:]


def cost_of_all(engine: ScriptedEngine, requests: list[int]) -> list[Cost]:
    """The costs of the last requests; earlier ones count as fed."""
    log = read_log(engine.log)
    return costs(log, [0] * (len(log) - len(requests)) + requests)


def token(engine: ScriptedEngine, text: str) -> list[int]:
    found = engine.engine.call(lambda m: list(m.model.tokenizer.encode(text, add_special_tokens=False)))
    assert isinstance(found, list)
    return found


def test_each_turn_prefills_what_is_new(engine: ScriptedEngine) -> None:
    engine.say(THOUGHT, "<think>\nAgain.\n</think>\n\nYes.", "No.")
    chat = engine.chat(LONG)
    turns = [ask(chat, text) for text in ("What is the capital of France?", "Is it?", "Is it not?")]
    found = cost_of_all(engine, [turn.stats.prompt_tokens for turn in turns])
    assert [cost.extra <= 4 for cost in found] == [True] * 3
    assert [cost.prefilled for cost in found] == [turn.stats.prefill_tokens for turn in turns]
    assert [turn.stats.restore_kind for turn in turns] == ["none", "live", "live"]
    assert [turn.stats.divergence for turn in turns] == ["first", "reasoning_dropped", "reasoning_dropped"]
    assert turns[0].message.reasoning == "The user asks a question about the cache."
    assert not any(contains(cost.prompt, token(engine, "asks a question")) for cost in found[1:])


def test_planted_a_rewind_that_goes_too_far_is_seen(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveCache, "rows_reach", lambda self, group, position: position <= 8)
    monkeypatch.setattr("mlxchat.cache.coverage.Coverage.covers", lambda self, position: position <= 8)
    engine.say(THOUGHT)
    chat = engine.chat(LONG)
    turns = [ask(chat, text) for text in ("And the capital?", "Is it so?")]
    assert cost_of_all(engine, [turn.stats.prompt_tokens for turn in turns])[1].extra > 100


def test_the_end_token_is_fed_once(engine: ScriptedEngine) -> None:
    """Sampled, fed ahead, taken back; the next prompt brings it."""
    engine.say("One.", "Two.")
    chat = engine.chat()
    first = ask(chat, "Count.")
    (end,) = token(engine, "<|im_end|>")
    held = engine.engine.call(lambda m: next(reversed(m.loop.sequences.values())).live.ids.tolist())
    assert held[-1] != end
    assert len(held) == first.stats.prompt_tokens + first.stats.completion_tokens
    second = ask(chat, "On.")
    assert second.stats.divergence == "append"
    for fed in since(engine, -2):
        assert not contains(fed.ids, [end, end])
    assert cost_of_all(engine, [first.stats.prompt_tokens, second.stats.prompt_tokens])[1].extra <= 1


def test_planted_an_end_token_left_in_the_caches_is_seen(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decoder, "_take_back", staticmethod(lambda live, before: None))
    engine.say("One.", "Two.")
    first = ask(engine.chat(), "Count again.")
    held = engine.engine.call(lambda m: next(reversed(m.loop.sequences.values())).live.ids.tolist())
    assert len(held) == first.stats.prompt_tokens + first.stats.completion_tokens + 1


def test_max_tokens_counts_reasoning_and_the_cut_reply_goes_on(engine: ScriptedEngine) -> None:
    engine.say(THOUGHT, "Well.")
    chat = engine.chat()
    cut = ask(chat, "Why?", options(max_tokens=7))
    assert (cut.finish_reason, cut.stats.completion_tokens) == ("length", 7)
    assert cut.message.generated is not None
    assert len(cut.message.generated.ids) == 7
    after = ask(chat, "Go on.")
    assert cost_of_all(engine, [cut.stats.prompt_tokens, after.stats.prompt_tokens])[1].extra <= 4
    assert [m.role for m in chat.messages] == ["user", "assistant", "user", "assistant"]


def test_one_token_is_a_reply(engine: ScriptedEngine) -> None:
    engine.say("Paris.")
    cut = ask(engine.chat(), "Where?", options(max_tokens=1))
    assert (cut.finish_reason, cut.stats.completion_tokens) == ("length", 1)


def test_an_end_token_at_the_limit_is_a_stop(engine: ScriptedEngine) -> None:
    engine.say("Yes.")
    length = len(token(engine, "Yes."))
    assert ask(engine.chat(), "Well?", options(max_tokens=length)).finish_reason == "length"
    assert ask(engine.chat(), "Well?", options(max_tokens=length + 1)).finish_reason == "stop"


def test_the_context_ends_the_reply_and_refuses_the_next(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", max_position_embeddings=96)
    engine = ScriptedEngine(model, tmp_path / "work", {"text": LONG, "open": True})
    try:
        chat = engine.chat()
        full = ask(chat, "Talk.")
        assert full.finish_reason == "length"
        assert full.stats.context_tokens == full.stats.context_limit == 96
        refused = failed(list(chat.ask(user("More."), RequestOptions())))
        assert isinstance(refused.error, ContextExceeded)
        assert refused.error.exit_code == 65
        assert len(chat.messages) == 2, "the message that did not fit is not kept"
        chat.undo()
        assert ask(chat, "Talk again.", options(max_tokens=3)).finish_reason == "length"
        engine.check()
    finally:
        engine.close()


def test_a_reply_that_must_be_whole_needs_its_room(engine: ScriptedEngine) -> None:
    """Nothing is sent then, and the room that there is gets said; one token less fits."""
    engine.say("One.", "Two.")
    chat = engine.chat("Be short.")
    limit = chat.outlook(RequestOptions(), [*chat.messages, user("a")]).tokens + 10
    wanted = RequestOptions(SamplingOptions(max_tokens=11), max_context=limit, whole_reply=True)
    before = len(read_log(engine.log))
    refused = failed(list(chat.ask(user("a"), wanted)))
    assert isinstance(refused.error, ContextExceeded)
    assert refused.error.hint == "a reply of 10 would fit"
    assert [len(read_log(engine.log)), len(chat.messages)] == [before, 1]
    assert ask(chat, "a", replace(wanted, sampling=SamplingOptions(max_tokens=10))).message.text == "One."
    assert ask(chat, "b", replace(wanted, whole_reply=False, max_context=None)).message.text == "Two."


@pytest.mark.parametrize("stop", ["capital", "tal.", "is the cap", "Paris"])
def test_a_stop_string_over_token_borders(engine: ScriptedEngine, stop: str) -> None:
    engine.say(THOUGHT, "Yes.")
    chat = engine.chat()
    events = list(chat.ask(user("What?"), options(stop=(stop,))))
    wanted = "Paris is the capital.".partition(stop)[0]
    assert (shown(events), done(events).message.text) == (wanted, wanted)
    assert done(events).finish_reason == "stop"
    after = ask(chat, "And?")
    assert after.stats.prefill_tokens <= after.stats.prompt_tokens - after.stats.common_prefix_tokens + 4


def test_planted_the_beginning_of_a_stop_string_shown_too_soon_is_seen(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopStrings, "_overlap", staticmethod(lambda text, stop: 0))
    with pytest.raises(AssertionError):
        test_a_stop_string_over_token_borders(engine, "is the cap")


def test_a_stop_string_in_the_reasoning_stops_nothing(engine: ScriptedEngine) -> None:
    engine.say(THOUGHT)
    turn = done(list(engine.chat().ask(user("What?"), options(stop=("cache",)))))
    assert turn.message.text == "Paris is the capital."


def test_a_setting_that_is_none_fails_the_turn_alone(engine: ScriptedEngine) -> None:
    chat = engine.chat()
    assert isinstance(failed(list(chat.ask(user("x"), options(extra={"colour": 1})))).error, UsageError)
    assert chat.messages == []
    engine.say("Yes.")
    assert ask(chat, "x").message.text == "Yes."


def test_progress_ends_with_the_whole_prompt(engine: ScriptedEngine) -> None:
    engine.say("Yes.")
    events = [e for e in engine.chat(LONG).ask(user("Progress?"), RequestOptions()) if isinstance(e, PrefillProgress)]
    assert events[-1].done == events[-1].total
    assert [e.done for e in events] == sorted(e.done for e in events)
    assert {e.cached for e in events} == {events[0].done}


def test_another_end_token_than_the_templates(tmp_path: Path) -> None:
    """R8: the model ends with one token, history shows another; nothing but that token is new."""
    model = model_folder(tmp_path / "model")
    engine = ScriptedEngine(model, tmp_path / "work")
    try:
        (other,), reply = token(engine, "<|endoftext|>"), token(engine, "Paris.")
        engine.engine.call(lambda m: setattr(m.loop._turns, "end_ids", m.loop._turns.end_ids | {other}))
        engine.say({"ids": [*reply, other], "open": True}, "Yes.")
        chat = engine.chat(LONG)
        turns = [ask(chat, "Where?"), ask(chat, "Sure?")]
        assert turns[0].finish_reason == "stop"
        assert not contains(since(engine, -1)[0].ids, [other])
        assert costs(read_log(engine.log), [turn.stats.prompt_tokens for turn in turns])[1].extra <= 1
        assert turns[1].stats.restore_kind == "live"
    finally:
        engine.close()
