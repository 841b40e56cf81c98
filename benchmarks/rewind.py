"""What a turn after a long thought costs, with the cache and without, paired in one run.

    python benchmarks/rewind.py [--models smollm2,gemma3-270m] [--contexts 500,1000,2000,4000] [--turns 3]

The first message carries pasted text up to the wanted context. Each answer is reasoning of --think tokens, then up to
120 tokens; each further user message has about 40. For every turn from the second on the same messages go to two
engines in one process, one with its cache and one with --no-cache, in alternating order; only the time to the first
token and the counters are compared. Prints a table, then JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from dataclasses import dataclass
from typing import Any

from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from mlxchat.engine.stats import RequestStats
from words import say

COLUMNS = [
    "model",
    "context",
    "turn",
    "prompt",
    "cached",
    "prefilled",
    "kind",
    "ttft",
    "uncached",
    "ratio",
    "written",
    "read",
]


@dataclass
class Row:
    """One paired turn: `stats` with the cache, `uncached_ttft_ms` without it."""

    model: str
    context: int
    stats: RequestStats
    uncached_ttft_ms: float

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "context": self.context,
            "turn": self.stats.turn,
            "prompt_tokens": self.stats.prompt_tokens,
            "cached_tokens": self.stats.cached_tokens,
            "prefill_tokens": self.stats.prefill_tokens,
            "restore_kind": self.stats.restore_kind,
            "ttft_ms": round(self.stats.ttft_ms, 1),
            "uncached_ttft_ms": round(self.uncached_ttft_ms, 1),
            "ratio": round(self.uncached_ttft_ms / self.stats.ttft_ms, 2),
            "bytes_written": self.stats.checkpoint_bytes,
            "bytes_read": self.stats.restore_bytes,
        }

    def cells(self) -> list[str]:
        out = []
        for name, value in self.to_json().items():
            if name.endswith("_ms"):
                out.append(f"{value / 1000:.2f} s")
            elif name.startswith("bytes"):
                out.append(f"{value / 2**20:.1f} MiB")
            else:
                out.append(str(value))
        return out


def ask(chat: Chat, text: str, think: int, tokens: int) -> RequestStats:
    options = RequestOptions(SamplingOptions(temp=0, max_tokens=tokens), ThinkingOptions(budget=think))
    for event in chat.ask(user(text), options):
        if isinstance(event, TurnFailed):
            raise event.error
        if isinstance(event, TurnDone):
            return event.stats
    raise AssertionError("the events have no end")


def measure(cached: Engine, uncached: Engine, model: str, context: int, turns: int, think: int) -> list[Row]:
    """One conversation at one context length."""
    rng = random.Random(context)
    chat, rows = Chat(cached), []
    ask(chat, say(rng, max(20, context - 100)) + " What is this about?", think, think + 120)
    for turn in range(2, turns + 1):
        text = say(rng, 36)
        twin = Chat(uncached)
        twin.messages = list(chat.messages)
        tokens = think + 120 if turn < turns else 1  # of the last answer only the first token matters
        if turn % 2:
            stats = ask(chat, text, think, tokens)
            other = ask(twin, text, think, 1)
        else:
            other = ask(twin, text, think, 1)
            stats = ask(chat, text, think, tokens)
        assert stats.prompt_tokens == other.prompt_tokens
        rows.append(Row(model, context, stats, other.ttft_ms))
        print(" ".join(f"{cell:>11}" for cell in rows[-1].cells()), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3-270m")
    parser.add_argument("--contexts", default="500,1000,2000,4000")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--think", type=int, default=640, help="reasoning tokens of each answer")
    args = parser.parse_args()
    os.environ["MLXCHAT_TEST_THINK_MIN"] = str(args.think)
    print(" ".join(f"{name:>11}" for name in COLUMNS))
    rows: list[Row] = []
    for model in args.models.split(","):
        settings = [
            EngineOptions(model, "chatml-think", cache=CacheOptions(enabled=enabled)) for enabled in (True, False)
        ]
        engines = [Engine.start(one, print) for one in settings]
        for context in map(int, args.contexts.split(",")):
            rows += measure(*engines, model, context, args.turns, args.think)
        for engine in engines:
            engine.close()
    print(
        json.dumps({"schema": "mlxchat.bench.rewind/1", "think": args.think, "rows": [row.to_json() for row in rows]})
    )


if __name__ == "__main__":
    main()
