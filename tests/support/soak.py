"""Random conversations for as long as one likes, each answer held against a run from nothing.

People ask, stop, retry, take back, begin anew, switch between chats and delete one, in a budget that is too small for
all of it. After each step: the answer is the oracle's token by token, the store's books are right, and the file is
within its budget. Resident memory is sampled.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import psutil
from mlxchat.engine.chat import Chat, next_number
from mlxchat.engine.events import Event, TurnDone
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import CacheOptions, RequestOptions, SamplingOptions
from mlxchat.engine.request import Request

from .scripted import ScriptedEngine, done

WORDS = [
    "the",
    "cache",
    "window",
    "layer",
    "block",
    "prefix",
    "user",
    "asks",
    "a",
    "question",
    "about",
    "Paris",
    "and",
    "its",
    "river",
    "or",
    "garden",
]


@dataclass
class Toll:
    """What a soak came to. `resident` has the process's bytes after each step, `in_use` what MLX's arrays hold."""

    steps: int = 0
    answers: int = 0
    tokens: int = 0
    wrong: int = 0
    interrupted: int = 0
    file_bytes_peak: int = 0
    resident: list[int] = field(default_factory=list)
    in_use: int = 0
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def slope(self) -> float:
        """Bytes of resident memory gained per step, over the second half: by then everything is warm."""
        half = self.resident[len(self.resident) // 2 :]
        if len(half) < 3:
            return 0.0
        return statistics.linear_regression(range(len(half)), half).slope

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "answers": self.answers,
            "tokens": self.tokens,
            "wrong_tokens": self.wrong,
            "interrupted": self.interrupted,
            "file_bytes_peak": self.file_bytes_peak,
            "resident_bytes": self.resident[-1] if self.resident else 0,
            "resident_bytes_per_step": round(self.slope, 1),
            "model_bytes_in_use": self.in_use,
            "cache": self.report,
        }


class Soak:
    """One engine on `model`, three chats. Close it at the end."""

    def __init__(self, model: Path, work: Path, seed: int, budget: int, longest: int = 400) -> None:
        self.rng = random.Random(seed)
        self.budget, self.longest = budget, longest
        cache = CacheOptions(directory=work / "kv", budget_bytes=budget)
        self.engine = ScriptedEngine(model, work, cache=cache)
        self.engine.unscript()
        self.system = self.words(150)
        self.chats = [self.begin() for _ in range(3)]
        self.toll = Toll()
        self._process = psutil.Process()

    def words(self, count: int) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(count))

    def begin(self) -> Chat:
        return self.engine.chat(self.rng.choice([self.system, self.system + " " + self.words(20), self.words(9)]))

    def message(self) -> Message:
        return user(f"{self.rng.randrange(1000)} {self.words(self.rng.choice([3, 40, self.longest]))}")

    def options(self) -> RequestOptions:
        return RequestOptions(SamplingOptions(temp=0.0, max_tokens=self.rng.choice([1, 5, 40, 120])))

    def step(self) -> None:
        """One thing that a person does, and its check."""
        which, dice = self.rng.randrange(len(self.chats)), self.rng.random()
        chat = self.chats[which]
        if dice < 0.65:
            self.follow(chat, self.options(), fresh=True)
        elif dice < 0.78:
            self.follow(chat, self.options(), fresh=False)
        elif dice < 0.9:
            chat.undo()
        elif dice < 0.96:
            self.chats[which] = self.begin()
        else:
            self.engine.engine.forget(chat.name)
            self.chats[which] = self.begin()
        self.look()

    def follow(self, chat: Chat, options: RequestOptions, *, fresh: bool) -> None:
        events = chat.ask(self.message(), options) if fresh else chat.retry(options)
        stop_after = self.rng.choice([None, None, None, None, 2, 4, 7])
        seen: list[Event] = []
        for event in self._stopping(chat, events, stop_after):
            seen.append(event)
        if not seen:
            return
        turn = done(seen)
        if turn.message in chat.messages:
            self.compare(chat, turn, options)

    @staticmethod
    def _stopping(chat: Chat, events: Iterator[Event], stop_after: int | None) -> Iterator[Event]:
        for number, event in enumerate(events, 1):
            yield event
            if number == stop_after:
                chat.stop()

    def compare(self, chat: Chat, turn: TurnDone, options: RequestOptions) -> None:
        """The oracle's answer to the same messages; of an interrupted one, its beginning."""
        request = Request(next_number(), "oracle", tuple(chat.messages[:-1]), options, uncached=True)
        self.engine.engine.submit(request)
        while not isinstance(event := request.events.get(), TurnDone):
            assert "Failed" not in type(event).__name__, event
        assert turn.message.generated is not None
        assert event.message.generated is not None
        got, right = turn.message.generated.ids, event.message.generated.ids
        if turn.finish_reason == "interrupted":
            self.toll.interrupted += 1
            right = right[: len(got)]
        self.toll.answers += 1
        self.toll.tokens += len(got)
        self.toll.wrong += sum(a != b for a, b in zip(got, right, strict=False)) + abs(len(got) - len(right))

    def look(self) -> None:
        self.engine.check()
        report = self.engine.engine.cache_report()
        assert report.store is not None
        assert report.store.file_bytes_peak <= self.budget
        self.toll.steps += 1
        self.toll.file_bytes_peak = report.store.file_bytes_peak
        self.toll.report = report.to_json()
        self.toll.in_use = mx.get_active_memory()
        self.toll.resident.append(self._process.memory_info().rss)

    def close(self) -> None:
        self.engine.close()
