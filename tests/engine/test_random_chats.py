"""Random walks: people ask, stop, retry, take back and begin anew in three chats, and nothing is ever prefilled twice.

After every request the store's books are right, and by the call log it cost the oracle's tokens and at most four more.
The same seed walks the same way, but for where a stop falls.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.engine.chat import Chat
from mlxchat.engine.events import Event, TurnDone
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import RequestOptions, SamplingOptions, ThinkingOptions
from support.oracle import oracle_new, read_log
from support.scripted import ScriptedEngine, model_folder
from support.tiny_tokenizer import Family

pytestmark = pytest.mark.exact

WORDS = (
    "the",
    "cache",
    "window",
    "layer",
    "user",
    "asks",
    "question",
    "Paris",
    "capital",
    "café",
    "日本",
    "{",
    "}",
    "<",
)
FIRST = string.ascii_letters + string.digits  # what messages begin with: a shared opening is another matter


class Walk:
    """One engine, three chats, and what each step did."""

    def __init__(self, folder: Path, kind: str, family: Family, seed: int, drop_live: str) -> None:
        self.rng = random.Random(seed)
        self.family = family
        self.engine = ScriptedEngine(model_folder(folder / "model", kind, family), folder / "work", drop_live=drop_live)
        self.chats = [self.engine.chat(text) for text in ("x " + self.words(100), "y " + self.words(300), None)]
        self.extra: list[int] = []
        self.logged = self.asked = 0

    def words(self, count: int) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(count))

    def message(self) -> Message:
        self.asked += 1
        return user(f"{FIRST[self.asked % len(FIRST)]} {self.words(self.rng.choice([2, 40, 400]))}")

    def reply(self) -> dict[str, Any]:
        said = self.words(self.rng.choice([3, 30, 300]))
        thought = f"{self.words(self.rng.choice([0, 5, 200]))}\n</think>\n\n" if self.rng.random() < 0.8 else ""
        opening = "<think>\n" if thought and self.family == "qwen3" else ""
        return {"text": opening + thought + said, "open": self.rng.random() < 0.1}

    def options(self) -> RequestOptions:
        pick = self.rng.choice
        sampling = SamplingOptions(max_tokens=pick([1, 5, 60, 600, 600]), stop=pick([(), ("capital",)]))
        return RequestOptions(sampling, ThinkingOptions(budget=pick([None, None, 0, 7, 40])))

    def step(self) -> None:
        chat, dice = self.rng.choice(self.chats), self.rng.random()
        if dice < 0.6:
            self.follow(chat, chat.ask(self.message(), self.options()))
        elif dice < 0.8:
            self.follow(chat, chat.retry(self.options()))
        elif dice < 0.95:
            chat.undo()
        else:
            chat.clear()

    def follow(self, chat: Chat, events: Iterator[Event]) -> None:
        """Listen to the end, stopping after some event now and then; then look at what it cost."""
        self.engine.say(self.reply())
        stop_after = self.rng.choice([None, None, None, 1, 2, 3, 5, 9])
        seen: list[Event] = []
        for event in events:
            seen.append(event)
            if len(seen) == stop_after:
                chat.stop()
        self.engine.check()
        if seen:
            assert isinstance(seen[-1], TurnDone), seen[-1]
            self.account(seen[-1])

    def account(self, turn: TurnDone) -> None:
        log = read_log(self.engine.log)
        tokens = turn.stats.prompt_tokens
        new, self.logged = len(log) > self.logged, len(log)
        if not new or len(log[-1].ids) < tokens or not log[-1].calls:
            return  # stopped before its prompt was in
        prompt = log[-1].prompt(tokens)
        assert log[-1].prefilled(tokens) == turn.stats.prefill_tokens
        self.extra.append(turn.stats.prefill_tokens - oracle_new(prompt, [fed.ids for fed in log[:-1]]))
        if self.extra[-1] > 4:
            print(self.extra[-1], turn.stats)  # for whoever reads the failure


def walk(folder: Path, kind: str, family: Family, seed: int, drop_live: str, steps: int) -> list[int]:
    """Tokens beyond the oracle's of each request that came through."""
    one = Walk(folder, kind, family, seed, drop_live)
    try:
        for _ in range(steps):
            one.step()
    finally:
        one.engine.close()
    assert one.engine.notices == []
    assert len(one.extra) > steps / 6
    return one.extra


@pytest.mark.parametrize(
    ("kind", "family", "drop_live"),
    [("qwen3", "qwen3", "1"), ("gemma3_text", "qwen36", ""), ("qwen3_5", "qwen36", "")],
)
def test_nothing_is_prefilled_twice(kind: str, family: Family, drop_live: str, tmp_path: Path) -> None:
    assert max(walk(tmp_path, kind, family, 1, drop_live, 20)) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss", "qwen3_5"])
@pytest.mark.parametrize("drop_live", ["", "1"])
def test_nothing_is_prefilled_twice_however_long(kind: str, seed: int, drop_live: str, tmp_path: Path) -> None:
    assert max(walk(tmp_path, kind, "qwen36", seed, drop_live, 60)) <= 4


def test_planted_anchors_without_their_tails_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpointer, "tail", lambda self, position, *, wait: None)
    assert max(walk(tmp_path, "qwen3", "qwen3", 1, "1", 20)) > 4
