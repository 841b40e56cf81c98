"""What checkpointing costs while a model decodes: the same tokens with the store and without, in pairs, A B B A.

    python benchmarks/checkpoint_tax.py [--models smollm2,gemma3-270m] [--pairs 100] [--tokens 256] [--prompt 0]

Both engines run in one process on the same weights and say the same words (a script in place of sampling, the KV is
real). The prompt is short, so that --tokens 256 completes one block; a shorter run completes one too behind a --prompt
of that many words, and then carries a larger share of its cost than any chat does. Words differ from pair to pair: each
block is new and is written; a template that would drop the reply as reasoning is refused. Only the decode is timed. The
bar is 1.02. Beside the ratio: the CPU seconds of the writer's and the reader's threads, and the bytes they moved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions

sys.path.insert(0, str(Path(__file__).resolve().parent))

from paired import ratio
from words import WORDS, say

BAR = 1.02
WARM_UP = 2
THREADS = ("mlxchat-kv-writer", "mlxchat-kv-reader")


def script(file: Path, lines: int, words: int) -> Path:
    """A reply for each request, none like another."""
    rng = random.Random(7)
    replies = [{"text": " ".join(rng.choice(WORDS) for _ in range(words))} for _ in range(lines)]
    file.write_text("\n".join(map(json.dumps, replies)))
    return file


def decode_ms(engine: Engine, tokens: int, prompt: str) -> float:
    """Milliseconds to decode `tokens` tokens after the prompt, in a new conversation."""
    options = RequestOptions(SamplingOptions(temp=0.0, max_tokens=tokens))
    for event in Chat(engine).ask(user(prompt), options):
        if isinstance(event, TurnFailed):
            raise event.error
        if isinstance(event, TurnDone):
            assert event.stats.completion_tokens == tokens, event.stats.completion_tokens
            return event.stats.decode_ms
    raise AssertionError("the events have no end")


def thread_seconds() -> dict[str, float]:
    """CPU seconds so far of the store's threads."""
    used = {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}
    return {one.name: used.get(one.native_id or 0, 0.0) for one in threading.enumerate() if one.name in THREADS}


def measure(model: str, pairs: int, tokens: int, words: int, work: Path) -> dict[str, Any]:
    prompt = say(random.Random(3), words) if words else "Go on."
    os.environ["MLXCHAT_TEST_SCRIPT"] = str(script(work / f"{Path(model).name}.jsonl", pairs + WARM_UP, 2 * tokens))
    with_store = Engine.start(EngineOptions(model, cache=CacheOptions(directory=work / "kv")), print)
    without = Engine.start(EngineOptions(model, cache=CacheOptions(enabled=False)), print)
    times: list[tuple[float, float]] = []
    try:
        for number in range(pairs + WARM_UP):
            order = (with_store, without) if number % 2 == 0 else (without, with_store)
            took = {id(engine): decode_ms(engine, tokens, prompt) for engine in order}
            if number >= WARM_UP:
                times.append((took[id(with_store)], took[id(without)]))
        report, cpu = with_store.cache_report().store, thread_seconds()
    finally:
        with_store.close()
        without.close()
    assert report is not None
    assert report.writes >= pairs, "the template drops these replies, so that nothing was checkpointed"
    found = ratio(times)
    print(f"{model}: {found}; " + ", ".join(f"{name} {value:.2f} s" for name, value in cpu.items()), flush=True)
    return {
        "model": model,
        "tokens": tokens,
        "ratio": found.to_json(),
        "within_bar": found.high <= BAR,
        "cpu_seconds": cpu,
        "bytes_written": report.bytes_written,
        "writes": report.writes,
        "dropped": dict(report.dropped),
        "decode_seconds": [round(sum(column) / 1000, 3) for column in zip(*times, strict=True)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3-270m")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=0, help="words of the prompt")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(model, args.pairs, args.tokens, args.prompt, Path(folder)) for model in args.models.split(",")]
    value = {"schema": "mlxchat.bench.checkpoint-tax/1", "bar": BAR, "rows": rows}
    print(json.dumps(value))
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")
    return 0 if all(row["within_bar"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
