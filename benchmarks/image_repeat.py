"""What the same question about the same picture costs the second time, paired with the first, in one process.

    python benchmarks/image_repeat.py [--families qwen3_vl,gemma3,lfm2_vl] [--pairs 8] [--scale 4]

Each pair is a new picture and a text, over 1,000 tokens together, asked in one conversation and again in another, one
token each. The models are the random ones of tests/support/vision_models.py, `--scale` times as wide; they measure
what is done twice, not how fast a real model is. Reading and scaling the picture is timed apart and left out of the
ratio. Prints a table, then JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.messages import ImagePart, Message, TextPart
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions
from mlxchat.engine.setup import Machinery
from mlxchat.engine.stats import RequestStats
from paired import ratio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import vision_models

ONE_TOKEN = RequestOptions(SamplingOptions(temp=0, max_tokens=1))
WORDS = "the picture shows a window, a layer, a block and what is before them; say which is which. "
LEAST_TOKENS = 1001


@dataclass(frozen=True)
class Run:
    """One request: its first token's time without, and apart from it, that of reading and scaling the picture."""

    prompt_tokens: int
    image_tokens: int
    prefill_tokens: int
    images_encoded: int
    ms: float
    picture_ms: float


class Host:
    """An engine that times what its reader does."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.engine = Engine.start(EngineOptions(str(folder), cache=CacheOptions(directory=cache)), print)
        self._picture_s = 0.0
        self.engine.call(self._tap)

    def _tap(self, machinery: Machinery) -> None:
        reader = machinery.renderer.images
        assert reader is not None
        prepare = reader.prepare

        def timed(part: ImagePart) -> Any:
            started = time.perf_counter()
            try:
                return prepare(part)
            finally:
                self._picture_s += time.perf_counter() - started

        reader.prepare = timed  # type: ignore[method-assign]

    def ask(self, message: Message) -> Run:
        """In a conversation of its own."""
        self._picture_s = 0.0
        for event in Chat(self.engine, "Look closely.").ask(message, ONE_TOKEN):
            if isinstance(event, TurnFailed):
                raise event.error
            if isinstance(event, TurnDone):
                return self._run(event.stats)
        raise AssertionError("the events have no end")

    def _run(self, stats: RequestStats) -> Run:
        picture_ms = 1000 * self._picture_s
        ms = stats.ttft_ms - picture_ms
        return Run(stats.prompt_tokens, stats.image_tokens, stats.prefill_tokens, stats.images_encoded, ms, picture_ms)


def measure(family: str, pairs: int, scale: int, work: Path) -> list[tuple[Run, Run]]:
    folder = vision_models.make(work / family, family, scale=scale)  # type: ignore[arg-type]
    host = Host(folder, work / "cache")
    try:
        found = []
        for number in range(pairs + 1):
            picture = vision_models.save_picture(work / f"{family}-{number}.png", 640, 480, seed=number)
            message = Message("user", (ImagePart(str(picture)), TextPart(f"{number}. " + WORDS * 22)))
            first, second = host.ask(message), host.ask(message)
            assert first.prompt_tokens >= LEAST_TOKENS, first
            assert (first.images_encoded, second.images_encoded, second.prefill_tokens) == (1, 0, 1), second
            if number:  # the first pair compiles
                found.append((first, second))
        return found
    finally:
        host.engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="qwen3_vl,gemma3,lfm2_vl")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--scale", type=int, default=4)
    args = parser.parse_args()
    columns = ("family", "prompt", "image", "first", "second", "picture", "encoded", "prefilled", "ratio")
    print(" ".join(f"{name:>10}" for name in columns))
    report = []
    with tempfile.TemporaryDirectory() as name:
        for family in args.families.split(","):
            runs = measure(family, args.pairs, args.scale, Path(name))
            gain = ratio([(first.ms, second.ms) for first, second in runs])
            first, second = runs[0]
            cells = (
                family,
                first.prompt_tokens,
                first.image_tokens,
                f"{statistics.median(one.ms for one, _ in runs):.1f} ms",
                f"{statistics.median(one.ms for _, one in runs):.1f} ms",
                f"{statistics.median(one.picture_ms for one, _ in runs):.1f} ms",
                second.images_encoded,
                second.prefill_tokens,
                f"{gain.mean:.1f}",
            )
            print(" ".join(f"{cell!s:>10}" for cell in cells), flush=True)
            pairs = [{"first": asdict(one), "second": asdict(two)} for one, two in runs]
            report.append({"family": family, "ratio": gain.to_json(), "pairs": pairs})
    print(json.dumps({"schema": "mlxchat.bench.image_repeat/1", "scale": args.scale, "families": report}))


if __name__ == "__main__":
    main()
