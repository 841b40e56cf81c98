"""Cold prefill and decode with checkpointing on, against mlx-lm's own generation on the same weights.

    python benchmarks/no_tax.py [--models smollm2,gemma3-270m] [--prompt 2000] [--tokens 200] [--pairs 100]

One process, one model object, one thread; pairs alternate A B B A. Prompts are random ids that no earlier prompt shares
a block with, so that nothing can be reused. Prefill is the time to the first token, decode that of the rest. Both sides
take the likeliest token and never stop early (the end tokens of the model are fed like any other). Ratios are of
speeds, ours over mlx-lm's: the bars are 0.97 for prefill and 0.98 for decode. After every tenth pair stderr has the
ratios so far; Ctrl-C ends a model's pairs, and those that were made count.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlxchat.engine.chat import next_number
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions
from mlxchat.engine.request import Request
from mlxchat.engine.setup import Machinery

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step
from paired import Ratio, ratio

PREFILL_BAR, DECODE_BAR = 0.97, 0.98
WARM_UP, SAY_EVERY = 1, 10
Times = tuple[float, float]
"""Seconds of prefill and of decode."""


def ours(engine: Engine, ids: list[int], tokens: int) -> Times:
    """A new conversation."""
    number = next_number()
    options = RequestOptions(SamplingOptions(temp=0.0, max_tokens=tokens))
    request = Request(number, f"pair {number}", (), options, ids=np.array(ids, np.int32))
    engine.submit(request)
    while True:
        event = request.events.get()
        if isinstance(event, TurnFailed):
            raise event.error
        if isinstance(event, TurnDone):
            break
    stats = event.stats
    assert stats.cached_tokens == 0, "the prompt was not new"
    assert stats.completion_tokens == tokens, "the model stopped early: take other --seed"
    return stats.ttft_ms / 1000, stats.decode_ms / 1000


def theirs(engine: Engine, ids: list[int], tokens: int) -> Times:
    """The same on the engine's thread, through mlx-lm."""

    def generate(made: Machinery) -> Times:
        started = time.perf_counter()
        first = 0.0
        for number, (token, _) in enumerate(generate_step(mx.array(ids), made.model.model, max_tokens=tokens)):
            int(token)
            if number == 0:
                first = time.perf_counter()
        ended = time.perf_counter()
        mx.clear_cache()
        return first - started, ended - first

    return engine.call(generate)  # type: ignore[return-value]


def measure(model: str, args: argparse.Namespace, work: Path) -> dict[str, Any]:
    engine = Engine.start(EngineOptions(model, cache=CacheOptions(directory=work / "kv")), print)
    rng, pairs = random.Random(args.seed), []
    try:
        for number in range(args.pairs + WARM_UP):
            ids = [rng.randrange(1000, 40_000) for _ in range(args.prompt)]
            if number % 2:
                b, a = theirs(engine, ids, args.tokens), ours(engine, ids, args.tokens)
            else:
                a, b = ours(engine, ids, args.tokens), theirs(engine, ids, args.tokens)
            if number >= WARM_UP:
                pairs.append((a, b))
            if pairs and len(pairs) % SAY_EVERY == 0:
                print(model, *(f"{name} {found};" for name, (found, _) in ratios(pairs).items()), file=sys.stderr)
    except KeyboardInterrupt:
        if not pairs:
            raise
    finally:
        engine.close()
    rows = {}
    for name, (found, bar) in ratios(pairs).items():
        rows[name] = {"ratio": found.to_json(), "bar": bar, "met": found.low >= bar}
        print(f"{model} {name}: {found}", flush=True)
    return {"model": model, **rows}


def ratios(pairs: list[tuple[Times, Times]]) -> dict[str, tuple[Ratio, float]]:
    """Of prefill and of decode, each with its bar: times the other way round are a ratio of speeds."""
    bars = (("prefill", PREFILL_BAR), ("decode", DECODE_BAR))
    return {name: (ratio([(b[at], a[at]) for a, b in pairs]), bar) for at, (name, bar) in enumerate(bars)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3-270m")
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(model, args, Path(folder)) for model in args.models.split(",")]
    value = {"schema": "mlxchat.bench.no-tax/1", "prompt": args.prompt, "tokens": args.tokens, "rows": rows}
    print(json.dumps(value))
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")
    return 0 if all(row[name]["met"] for row in rows for name in ("prefill", "decode")) else 1


if __name__ == "__main__":
    sys.exit(main())
