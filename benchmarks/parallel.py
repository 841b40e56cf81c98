"""Several conversations at once against the same ones after another, in pairs, A B B A; what long ones leave behind.

    python benchmarks/parallel.py [--work chats|prompts] [--models smollm2,gemma3-270m] [--json FILE]
        chats     [--widths 1,2,4,8] [--pairs 5] [--tokens 48]   short chats; the bar is 2.2 times the speed with four
        prompts   [--tokens 4000]   four long prompts, with checkpoints and without: wall time, memory, the file

Both engines of a pair run in one process and say the same words (a script in place of sampling; the KV is real). Times
are from the first request's start to the last one's end, prefill and all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mlxchat.engine import backend

backend.prepare()  # before MLX is imported, or it keeps the slow BLAS

import mlx.core as mx
from mlxchat.engine.chat import next_number
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions
from mlxchat.engine.request import Request
from mlxchat.engine.setup import Machinery
from mlxchat.engine.stats import RequestStats

sys.path.insert(0, str(Path(__file__).resolve().parent))

from paired import ratio, seconds
from words import WORDS, say

BAR = 2.2
ANSWER = 400  # words of the script's replies: longer than any answer may become
MIB = 1024 * 1024


def script(work: Path) -> None:
    """One reply for all, which no limit lets end."""
    rng = random.Random(3)
    file = work / "script.jsonl"
    file.write_text(json.dumps({"text": " ".join(rng.choice(WORDS) for _ in range(ANSWER)), "open": True}))
    os.environ["MLXCHAT_TEST_SCRIPT"] = str(file)


def request(text: str, tokens: int) -> Request:
    options = RequestOptions(SamplingOptions(temp=0.0, max_tokens=tokens))
    return Request(next_number(), uuid.uuid4().hex, (user(text),), options)


def stats_of(asked: Request) -> RequestStats:
    while True:
        event = asked.events.get(timeout=7200)
        if isinstance(event, TurnFailed):
            raise event.error
        if isinstance(event, TurnDone):
            return event.stats


def answer(engine: Engine, texts: list[str], tokens: int) -> list[RequestStats]:
    """Submit all; a request's stats once it has ended."""
    many = [request(text, tokens) for text in texts]
    for one in many:
        engine.submit(one)
    return [stats_of(one) for one in many]


def both_clocks(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of the processor. Beside other work only the second means much."""
    cpu = time.process_time()
    wall = seconds(work)
    return round(wall, 3), round(time.process_time() - cpu, 3)


def chats(model: str, args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    rng, rows = random.Random(5), []
    single = Engine.start(EngineOptions(model, cache=CacheOptions(directory=work / "kv")), print)
    for width in args.widths:
        engine = Engine.start(EngineOptions(model, cache=CacheOptions(directory=work / "kv"), parallel=width), print)
        times, cpu = [], []
        for number in range(args.pairs + 1):
            texts = [say(rng, 12) for _ in range(width)]
            order = (single, engine) if number % 2 else (engine, single)
            took = {id(one): both_clocks(partial(answer, one, texts, args.tokens)) for one in order}
            if number:  # the first pair compiles
                times.append((took[id(single)][0], took[id(engine)][0]))
                cpu.append((took[id(single)][1], took[id(engine)][1]))
            print(model, width, took[id(single)], took[id(engine)], file=sys.stderr, flush=True)
        engine.close()
        found, spent = ratio(times), sum(time for _, time in times)
        speed = args.pairs * width * args.tokens / spent
        print(f"{model} {width}: {found} as fast, by CPU time {ratio(cpu).mean:.2f}; {speed:.1f} tokens/s", flush=True)
        row = {"model": model, "width": width, "ratio": found.to_json(), "cpu_ratio": ratio(cpu).to_json()}
        rows.append({**row, "tokens_per_s": round(speed, 2)})
    single.close()
    return rows


def prompts(model: str, args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Four prompts of so many tokens at once, with the store and without."""
    rng = random.Random(9)
    row: dict[str, Any] = {"model": model, "tokens": args.tokens}
    for name, cache in (("with", CacheOptions(directory=work / "kv")), ("without", CacheOptions(enabled=False))):
        engine = Engine.start(EngineOptions(model, cache=cache, parallel=4), print)
        answer(engine, [say(rng, 12)] * 4, 4)
        texts = [say(rng, args.tokens - 10) for _ in range(4)]  # a word is a token to Gemma; the template adds ten
        held: list[int] = []
        loaded = engine.call(lambda machinery, held=held: note_sizes(machinery, held))
        started = time.perf_counter()
        ends = answer(engine, texts, 32)
        row[name] = {
            "wall_s": round(time.perf_counter() - started, 2),
            "prompt_tokens": [one.prompt_tokens for one in ends],
            "loaded_mib": mib(loaded),
            "after_mib": mib(engine.call(lambda machinery: active())),
            "four_caches_mib": mib(sum(held)),
            "peak_mib": mib(max(one.peak_memory_bytes for one in ends)),
        }
        report = engine.cache_report().store
        if report is not None:
            row[name] |= {"file_mib": mib(report.file_bytes), "budget_mib": mib(report.budget_bytes)}
        engine.close()
        print(model, name, row[name], flush=True)
    row["wall_ratio"] = round(row["with"]["wall_s"] / row["without"]["wall_s"], 3)
    return row


def active() -> int:
    mx.clear_cache()
    return mx.get_active_memory()


def mib(size: Any) -> float:
    return round(size / MIB, 1)


def note_sizes(machinery: Machinery, held: list[int]) -> int:
    """From now on `held` gets the bytes of each sequence's KV at its end; what is in memory before it."""
    turns = machinery.loop._turns
    finish = turns.finish

    def finishing(run: Any) -> None:
        held.append(run.live.nbytes)
        finish(run)

    turns.finish = finishing  # type: ignore[method-assign]
    return active()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("chats", "prompts"), default="chats")
    parser.add_argument("--models", default="smollm2,gemma3-270m")
    parser.add_argument("--widths", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.tokens = args.tokens or (48 if args.work == "chats" else 4000)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        script(Path(folder))
        for model in args.models.split(","):
            made = chats(model, args, Path(folder)) if args.work == "chats" else [prompts(model, args, Path(folder))]
            rows += made
    value = {"schema": "mlxchat.bench.parallel/1", "work": args.work, "bar": BAR, "rows": rows}
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")
    fours = [row for row in rows if row.get("width") == 4]
    return 0 if all(row["ratio"]["mean"] >= BAR for row in fours) else 1


if __name__ == "__main__":
    sys.exit(main())
