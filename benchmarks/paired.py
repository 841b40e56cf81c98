"""Paired timings: alternate A B B A in one process, geometric mean of the ratios, 95 % bootstrap interval."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any


@dataclass(frozen=True)
class Ratio:
    """Time of A over time of B: the geometric mean over `pairs` and its interval."""

    pairs: int
    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.mean:.3f} (95 % interval {self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def alternate(a: Callable[[], object], b: Callable[[], object], pairs: int) -> list[tuple[float, float]]:
    """(seconds of a, seconds of b) for each pair; every other pair runs b first."""
    out = []
    for number in range(pairs):
        if number % 2:
            second, first = seconds(b), seconds(a)
        else:
            first, second = seconds(a), seconds(b)
        out.append((first, second))
    return out


def ratio(times: list[tuple[float, float]], seed: int = 0, draws: int = 4000) -> Ratio:
    """The ratio of paired times."""
    logs = [log(a / b) for a, b in times]
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(logs, k=len(logs))) for _ in range(draws))
    low, high = means[int(draws * 0.025)], means[int(draws * 0.975)]
    return Ratio(len(logs), exp(statistics.fmean(logs)), exp(low), exp(high))
