"""What the tests named after other engines' reports share: conversations, drivers, a disk, and their planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlxchat.cache.index import Entry
from mlxchat.engine.options import KVQuantization
from mlxchat.engine.stats import RequestStats
from support import tiny_models
from support.driver import Driver
from support.kvstore import FaultyFiles
from support.parity import architecture

Fault = Callable[[Any], None]
Row = Callable[["Rig"], None]


@dataclass(frozen=True)
class Trap:
    """A report, the test of it, and the faults that must turn it red. `reports` as TRAPS.md has them."""

    reports: str
    row: Row
    faults: tuple[Fault, ...]


@dataclass
class Traps:
    """The traps of one test module, by the name of their test."""

    rows: dict[str, Trap] = field(default_factory=dict)

    def add(self, reports: str, *faults: Fault) -> Callable[[Row], Row]:
        """Register a function that asserts what the report's test asserts."""

        def register(row: Row) -> Row:
            assert faults, "a test that can't fail shows nothing"
            self.rows[row.__name__] = Trap(reports, row, faults)
            return row

        return register

    def turns_red(self, name: str, number: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Plant a fault of a test and assert that it fails."""
        rig.planted = True
        self.rows[name].faults[number](monkeypatch)
        with pytest.raises(AssertionError):
            self.rows[name].row(rig)

    @property
    def planted(self) -> list[tuple[str, int]]:
        """(test, number of its fault), all of them."""
        return [(name, number) for name, trap in self.rows.items() for number in range(len(trap.faults))]


class Rig:
    """Drivers on tiny models. Close it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rng = np.random.default_rng(41)
        self._made: list[Driver] = []
        self.planted = False

    def draw(self, count: int) -> list[int]:
        """Random ids."""
        return [int(i) for i in self._rng.integers(5, 1000, count)]

    def pair(
        self,
        name: str,
        *,
        quantization: KVQuantization | None = None,
        budget: int = 1 << 30,
        files: FaultyFiles | None = None,
    ) -> tuple[Driver, Driver]:
        """(with a store, from nothing each time) on an architecture of the parity matrix, or gemma3 of a window."""
        model = window_model(int(name.partition(":")[2])) if ":" in name else architecture(name)
        folder = self.folder / str(len(self._made))
        cached = Driver(model, folder, quantization=quantization, budget=budget, files=files)
        self._made.append(cached)
        return cached, Driver(model, None, off=True, quantization=quantization)

    def close(self) -> None:
        """End all stores; their books must be in order, unless a fault was `planted`."""
        for driver in self._made:
            assert driver.store is not None
            if not self.planted:
                driver.store.check()
            driver.close()


_windows: dict[int, Any] = {}


def window_model(width: int) -> Any:
    """A gemma3 of two layers, one of them with a window of `width`."""
    if width not in _windows:
        changes = {"sliding_window": width, "num_hidden_layers": 2, "sliding_window_pattern": 2}
        _windows[width] = tiny_models.build("gemma3_text", **changes)
    return _windows[width]


def asked(
    drivers: tuple[Driver, Driver],
    name: str,
    prompt: list[int],
    reply: list[int],
    marks: dict[int, str] | None = None,
    **how: Any,
) -> RequestStats:
    """One turn of conversation `name`, whose logits and calls must be those of the run from nothing."""
    cached, plain = drivers
    stats, logits = cached.turn(name, prompt, reply, marks, **how)
    at = stats.cached_tokens
    _, wanted = plain.turn(name, prompt, reply, marks, extra_cut=at or None, **how)
    assert np.array_equal(logits, wanted), f"other logits after {at} of {len(prompt)}"
    assert cached.shapes == [shape for shape in plain.shapes if shape[0] >= at]
    return stats


def entries(driver: Driver, group: str | None = None) -> list[Entry]:
    """All records of a group, by position, once all are written."""
    assert driver.store is not None
    assert driver.store.drain(30)
    found = [entry for entry in driver.store._index if group in (None, entry.header.group)]
    return sorted(found, key=lambda entry: entry.header.position)


def forget(driver: Driver, entry: Entry) -> None:
    """As if it had been evicted."""
    assert driver.store is not None
    driver.reuse.unpin(next(iter(driver.sequences.values())))
    assert driver.store.forget(entry.header.place, entry.header.group)
