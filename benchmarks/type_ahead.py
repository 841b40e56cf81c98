"""What is left to prefill when a message was typed at a human pace, and its last words have just been sent.

    python benchmarks/type_ahead.py [--model smollm2] [--paces even,bursty] [--words 150] [--speed 1]

Paces (milliseconds from one word to the next) are in benchmarks/type_ahead.json: 60 words a minute, evenly, or in
bursts with long pauses between them. --speed 2 types twice as fast. The chat is told of words and pauses as the prompt
tells it. Prints a line per pace, then JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

from mlxchat.cli.ahead import WorkAhead
from mlxchat.cli.line_reader import PAUSE_S
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import user
from mlxchat.engine.options import EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from words import say

PACES: dict[str, list[int]] = json.loads(Path(__file__).with_name("type_ahead.json").read_text(encoding="utf-8"))


def type_message(work: WorkAhead, words: list[str], pace: list[int], speed: float) -> str:
    """Type all words; returns the message as it is sent, Enter coming right after the last one."""
    text = ""
    for word, milliseconds in zip(words, itertools.cycle(pace), strict=False):
        seconds = milliseconds / 1000 / speed
        if seconds > PAUSE_S and text:
            time.sleep(PAUSE_S)
            work.typed(text, True)
            seconds -= PAUSE_S
        time.sleep(seconds)
        text += word + " "
        work.typed(text, False)
    return text.strip()


def measure(engine: Engine, name: str, args: argparse.Namespace) -> dict[str, Any]:
    options = RequestOptions(SamplingOptions(temp=0, max_tokens=args.think + 40), ThinkingOptions(budget=args.think))
    chat, work = Chat(engine), WorkAhead(options, lambda: True)
    for event in chat.ask(user("Good morning. What can you do for me?"), options):
        if isinstance(event, TurnFailed):
            raise event.error
    work.opened(chat)
    work.rest()
    words = say(random.Random(len(name)), args.words).split()
    message = user(type_message(work, words, PACES[name], args.speed))
    for event in chat.ask(message, options):
        if isinstance(event, TurnDone):
            stats = event.stats
    return {
        "pace": name,
        "model": args.model,
        "words": args.words,
        "speed": args.speed,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "idle_prefill_tokens": stats.idle_prefill_tokens,
        "typeahead_prefill_tokens": stats.typeahead_prefill_tokens,
        "prefill_tokens": stats.prefill_tokens,
        "ttft_ms": round(stats.ttft_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--paces", default="even,bursty")
    parser.add_argument("--words", type=int, default=150)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--think", type=int, default=40)
    args = parser.parse_args()
    engine = Engine.start(EngineOptions(args.model, "chatml-think"), print)
    rows = []
    for name in args.paces.split(","):
        rows.append(measure(engine, name, args))
        print(" · ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    engine.close()
    print(json.dumps({"schema": "mlxchat.bench.type_ahead/1", "rows": rows}))


if __name__ == "__main__":
    main()
