"""A long conversation whose reasoning is dropped each turn: what is left to prefill after Enter, and how long it takes.

    python benchmarks/turns.py [--model smollm2] [--turns 20] [--think 40] [--answer 60] [--seconds 30]

Messages of one kind go through three conversations: `none` works ahead of nothing, `idle` gets time to read before each
message, `typed` also gets the message eight words at a time. Prints a table, then JSON.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from typing import Any

from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import Message, user
from mlxchat.engine.options import EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from mlxchat.engine.setup import Machinery
from mlxchat.engine.stats import RequestStats
from words import say

COLUMNS = ["way", "turn", "prompt", "common", "cached", "idle", "typed", "prefilled", "words", "ttft ms"]
SYSTEM = "You are a patient assistant who reads what is given and answers in a few plain words."


@dataclass(frozen=True)
class Turn:
    """One request. `words`: tokens of the user's message and the generation header, which no work ahead can spare."""

    way: str
    stats: RequestStats
    words: int

    def to_json(self) -> dict[str, Any]:
        stats = self.stats
        return {
            "way": self.way,
            "turn": stats.turn,
            "prompt_tokens": stats.prompt_tokens,
            "common_prefix_tokens": stats.common_prefix_tokens,
            "cached_tokens": stats.cached_tokens,
            "idle_prefill_tokens": stats.idle_prefill_tokens,
            "typeahead_prefill_tokens": stats.typeahead_prefill_tokens,
            "prefill_tokens": stats.prefill_tokens,
            "message_and_header": self.words,
            "ttft_ms": round(stats.ttft_ms, 1),
        }


def converse(engine: Engine, way: str, args: argparse.Namespace) -> list[Turn]:
    """One conversation, turn by turn."""
    # Words of its own: what another way said is stored, and would be found.
    chat, rng, turns = Chat(engine, SYSTEM), random.Random(way), []
    sampling = SamplingOptions(temp=0, max_tokens=args.think + args.answer)
    options = RequestOptions(sampling, ThinkingOptions(budget=args.think))
    for _ in range(args.turns):
        text = say(rng, args.words)
        if way != "none":
            chat.prepare(options).done.wait(args.seconds)
        if way == "typed":
            for end in range(8, len(text.split()), 8):
                chat.prepare(options, user(" ".join(text.split()[:end]) + " ")).done.wait(args.seconds)
        words = words_and_header(engine, (*chat.messages, user(text)), options)
        for event in chat.ask(user(text), options):
            if isinstance(event, TurnFailed):
                raise event.error
            if isinstance(event, TurnDone):
                turns.append(Turn(way, event.stats, words))
                print(" ".join(f"{cell:>9}" for cell in turns[-1].to_json().values()), flush=True)
    return turns


def words_and_header(engine: Engine, messages: tuple[Message, ...], options: RequestOptions) -> int:
    """Tokens of the last message and of the header of its answer."""

    def count(made: Machinery) -> int:
        prompt = made.renderer.render(messages, thinking=options.thinking)
        return len(prompt.ids) - max(prompt.positions("user_start"))

    return int(engine.call(count))  # type: ignore[call-overload]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--words", type=int, default=30, help="words of each message")
    parser.add_argument("--think", type=int, default=40)
    parser.add_argument("--answer", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60, help="patience with work ahead")
    parser.add_argument("--ways", default="none,idle,typed")
    args = parser.parse_args()
    engine = Engine.start(EngineOptions(args.model, "chatml-think"), print)
    print(
        " ".join(
            f"{name:>9}"
            for name in ["way", "turn", "prompt", "common", "cached", "idle", "typed", "prefilled", "words", "ttft ms"]
        )
    )
    turns = [turn for way in args.ways.split(",") for turn in converse(engine, way, args)]
    engine.close()
    summary = {way: flatness([turn for turn in turns if turn.way == way]) for way in args.ways.split(",")}
    print(
        json.dumps({"schema": "mlxchat.bench.turns/1", "summary": summary, "turns": [turn.to_json() for turn in turns]})
    )


def flatness(turns: list[Turn]) -> dict[str, float]:
    """The most that was prefilled beyond what had to be, and the last turn's time per new token over the second's."""
    per_token = [turn.stats.ttft_ms / turn.stats.prefill_tokens for turn in turns]
    idle = turns[0].way != "none"
    beyond = [
        turn.stats.prefill_tokens
        - (turn.words if idle else max(1, turn.stats.prompt_tokens - turn.stats.common_prefix_tokens))
        for turn in turns
    ]
    return {"most_beyond": max(beyond), "last_over_second": round(per_token[-1] / per_token[1], 3)}


if __name__ == "__main__":
    main()
