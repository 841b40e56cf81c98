from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@cache
def tiny_model(kind: str) -> Any:
    from support import tiny_models

    changes = tiny_models.SMALLER[kind] if kind in ("gemma3n", "gemma4_text") else {}  # by far the slowest
    return tiny_models.build(kind, **changes)


@pytest.fixture
def model() -> Callable[[str], Any]:
    """Tiny models, built once per process: the first compile of an architecture is slow."""
    return tiny_model


@pytest.fixture
def draw() -> Callable[[int], list[int]]:
    """Random ids, the same in every run."""
    rng = np.random.default_rng(20)
    return lambda count: rng.integers(5, 1000, count).tolist()


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """(cached, uncached) drivers of one model; the cached ones are closed at the end."""
    from support.driver import Driver

    made = []

    def make(model: Any) -> tuple[Any, Any]:
        cached = Driver(model, tmp_path)
        made.append(cached)
        return cached, Driver(model, None, off=True)

    yield make
    for driver in made:
        driver.close()
        assert driver.troubles == []


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Any]:
    """Drivers for a test named after another engine's report; their books are looked at at the end."""
    from support.trap_rig import Rig

    made = Rig(tmp_path)
    yield made
    made.close()
