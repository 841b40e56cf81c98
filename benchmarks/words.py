"""What made-up people say in the benchmarks."""

from __future__ import annotations

import random

WORDS = [
    "cache",
    "window",
    "layer",
    "token",
    "block",
    "prompt",
    "restore",
    "rewind",
    "shared",
    "prefix",
    "writer",
    "thread",
    "index",
    "record",
    "offset",
    "answer",
    "question",
    "tool",
    "result",
    "file",
    "line",
    "test",
    "build",
    "model",
    "memory",
    "disk",
    "river",
    "garden",
    "engine",
    "letter",
    "number",
    "colour",
]


def say(rng: random.Random, words: int) -> str:
    """So many random words, as a sentence."""
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."
