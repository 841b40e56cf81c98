"""Budgets and floors of the reasoning, on the scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.events import ReasoningDelta
from mlxchat.engine.messages import user
from mlxchat.engine.options import RequestOptions, SamplingOptions, ThinkingOptions
from mlxchat.engine.sampling import ThinkFloor
from mlxchat.engine.turn import TurnBuilder
from support.oracle import costs, read_log
from support.scripted import ScriptedEngine, ask, done, model_folder

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    folder = tmp_path_factory.mktemp("thinking")
    made = ScriptedEngine(model_folder(folder / "model"), folder / "work")
    yield made
    made.close()
    assert made.notices == []


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    """A model without reasoning of its own under the built-in template: the prompt opens the thought."""
    folder = tmp_path_factory.mktemp("thinker")
    model = model_folder(folder / "model", "llama", "chatml")
    made = ScriptedEngine(model, folder / "work", template="chatml-think")
    yield made
    made.close()


def token(engine: ScriptedEngine, text: str) -> list[int]:
    found = engine.engine.call(lambda m: list(m.model.tokenizer.encode(text, add_special_tokens=False)))
    assert isinstance(found, list)
    return found


def think(budget: int, max_tokens: int = 60) -> RequestOptions:
    return RequestOptions(SamplingOptions(max_tokens=max_tokens), ThinkingOptions(budget=budget))


@pytest.mark.parametrize("budget", [0, 1, 9])
def test_a_spent_budget_feeds_the_closing_marker_once(thinker: ScriptedEngine, budget: int) -> None:
    thinker.say({"text": "hello world " * 40, "open": True})
    chat = thinker.chat()
    turn = done(list(chat.ask(user("Think."), think(budget))))
    fed = read_log(thinker.log)[-1]
    close = token(thinker, "\n</think>\n\n")
    reply = fed.ids[turn.stats.prompt_tokens :]
    assert sum(reply[i : i + len(close)] == close for i in range(len(reply))) == 1
    assert reply[budget : budget + len(close)] == close
    assert turn.stats.reasoning_tokens == budget
    assert turn.stats.completion_tokens == 60
    assert turn.message.text
    assert turn.finish_reason == "length"
    after = ask(chat, "And?", think(budget, 20))
    log = read_log(thinker.log)
    assert costs(log, [0] * (len(log) - 1) + [after.stats.prompt_tokens])[0].extra <= 4


@pytest.mark.parametrize(
    "fault",
    [
        lambda self, run: None,
        lambda self, run: run.forced.extend(self._renderer.budget_close_ids if len(run.ids) in (9, 20) else ()),
    ],
    ids=["never", "twice"],
)
def test_planted_a_budget_closed_wrongly_is_seen(
    thinker: ScriptedEngine, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TurnBuilder, "close_at_budget", fault)
    with pytest.raises(AssertionError):
        test_a_spent_budget_feeds_the_closing_marker_once(thinker, 9)


def test_no_budget_closes_a_thought_that_the_model_opens_itself(engine: ScriptedEngine) -> None:
    engine.say({"text": "<think>\nno\n</think>\n\nYes, of course it is so.", "open": True})
    turn = done(list(engine.chat().ask(user("Think."), think(0, 14))))
    fed = read_log(engine.log)[-1]
    close = token(engine, "\n</think>\n\n")
    assert fed.ids[turn.stats.prompt_tokens :][: 1 + len(close)] == [*token(engine, "<think>"), *close]
    assert turn.stats.reasoning_tokens == 0
    assert turn.message.text
    drops = engine.engine.call(lambda m: next(reversed(m.loop.sequences.values())).drops_reply)
    assert drops, "the empty thought goes, and the reply's positions with it"


def test_a_thought_within_its_budget_is_left_alone(thinker: ScriptedEngine) -> None:
    thinker.say("Short.\n</think>\n\nYes.")
    events = list(thinker.chat().ask(user("Think."), think(50)))
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)).strip() == "Short."
    assert (done(events).message.text, done(events).finish_reason) == ("Yes.", "stop")


def test_the_floor_masks_end_tokens_and_whatever_opens_the_closing_marker(thinker: ScriptedEngine) -> None:
    def look(machinery: Any) -> tuple[set[int], set[int], list[str]]:
        turns = machinery.loop._turns
        return set(turns._floor_ids), set(turns.end_ids), [machinery.model.tokenizer.decode([i]) for i in range(600)]

    masked, ends, texts = thinker.engine.call(look)  # type: ignore[misc]
    assert ends <= masked
    assert {i for i, text in enumerate(texts) if "<" in text} <= masked
    assert len(masked) < 50


def test_the_floor_keeps_a_model_thinking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling hot, this random model soon draws an end token; the floor forbids it so many times."""

    def run(work: Path, minimum: str) -> int:
        engine = ScriptedEngine(model, work, template="chatml-think", think_min=minimum)
        engine.unscript()
        try:
            wanted = RequestOptions(SamplingOptions(temp=4.0, seed=3, max_tokens=900), ThinkingOptions(budget=800))
            return done(list(engine.chat().ask(user("Think."), wanted))).stats.reasoning_tokens
        finally:
            engine.close()

    model = model_folder(tmp_path / "model", "llama", "chatml", vocab_size=640)
    free = run(tmp_path / "free", "")
    assert free < 800
    assert run(tmp_path / "held", "800") == 800
    monkeypatch.setattr(ThinkFloor, "__call__", lambda self, tokens, logits: logits)
    assert run(tmp_path / "planted", "800") == free, "planted fault: a floor that masks nothing"
