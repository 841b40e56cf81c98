"""The comparisons that the tests make, on the user's own machine: restored runs against runs from nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ..cache.keys import namespace_key
from ..cache.layers import Layout
from ..cache.store import Store
from . import backend
from .cache_setup import reaches_of
from .cuts import calls, cuts
from .fresh_caches import FreshCaches
from .random_models import CONFIGS, VOCABULARY, build
from .reuse import Reuse
from .runner import CallLog, ModelRunner
from .sequence import Sequence
from .stats import RequestStats

PROMPT, EDGE, ANCHOR = 900, 512, 700
SUFFIXES = (1, 2, 257)
LONG, THOUGHT, NEXT = 4000, 300, 40
_BUDGET, _QUEUE = 1 << 30, 1 << 28


@dataclass(frozen=True)
class Cell:
    """One restore to `position`, then `suffix` new ids and two more.

    restored            how many ids came back, all of them from disk
    same_calls          whether the calls after it were those of the run from nothing
    bit_equal           whether all logits were
    largest_difference  of any logit; None if one of them is not a number
    same_tokens         whether the likeliest id was the same each time
    """

    position: int
    suffix: int
    restored: int
    same_calls: bool
    bit_equal: bool
    largest_difference: float | None
    same_tokens: bool

    @property
    def right(self) -> bool:
        """Whether the promise is kept: equal bits on the wheel's own BLAS, equal calls and tokens elsewhere."""
        exact = self.bit_equal or backend.prepare().is_fast
        return self.restored == self.position and self.same_calls and self.same_tokens and exact

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {**asdict(self), "right": self.right}


@dataclass(frozen=True)
class Rewind:
    """A turn after a long thought that is dropped, with the cache and from nothing."""

    prompt_tokens: int
    cached_tokens: int
    ttft_ms: float
    uncached_ttft_ms: float
    bytes_read: int
    bytes_written: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field, and how many times sooner the first token came."""
        return {**asdict(self), "ratio": round(self.uncached_ttft_ms / self.ttft_ms, 2)}


class Side:
    """One model with a store in `folder`, or without one and without reuse. Close it at the end."""

    def __init__(self, model: Any, folder: Path | None) -> None:
        make = FreshCaches(model)
        layout = Layout.of(make())
        namespace = namespace_key({"layout": layout.describe()})
        self.troubles: list[str] = []
        self.store = (
            None
            if folder is None
            else Store(folder, namespace, _BUDGET, _QUEUE, self.troubles.append, reaches=reaches_of(layout))
        )
        self._reuse = Reuse(make, layout, self.store, namespace, off=folder is None)
        self._runner = ModelRunner(model, CallLog(None))
        self._sequences: dict[str, Sequence] = {}
        self.shapes: list[tuple[int, int]] = []

    def turn(
        self, name: str, prompt: list[int], reply: list[int], marks: tuple[int, ...] = (), cut: int | None = None
    ) -> tuple[RequestStats, Any, float]:
        """Prefill the prompt, feed the reply; stats, logits from the prompt's end on [calls, vocabulary], TTFT in s."""
        sequence = self._sequences.setdefault(name, Sequence(len(self._sequences) + 1, name))
        stats, ids, started = RequestStats(), np.array(prompt, np.int32), time.perf_counter()
        live = self._reuse.begin(sequence, ids, stats)
        sequence.stable, sequence.drops_reply = max(marks, default=len(prompt)), False
        ends = sorted({*cuts(len(ids), marks), *(() if cut is None else (cut,))})
        logits, self.shapes, first = [], [], 0.0
        for start, end in calls(live.length, ends):
            out = self._call(sequence, live, ids[start:end])
            if end == len(ids):
                logits.append(out)
                first = time.perf_counter() - started
            kind = "user_start" if end in marks else None
            stats.checkpoint_bytes += self._reuse.record_prefill(sequence, start, end, kind, end == len(ids) - 1)
        for token in reply:
            logits.append(self._call(sequence, live, np.array([token], np.int32)))
            self._reuse.record_decode(sequence, False)
        self._reuse.end(sequence)
        return stats, np.stack(logits), first

    def _call(self, sequence: Sequence, live: Any, ids: Any) -> Any:
        self.shapes.append((live.length, len(ids)))
        logits = self._runner.forward(0, sequence.number, live, live.length, mx.array(ids.astype(np.uint32)))
        last = np.array(logits[0, -1].astype(mx.float32))
        self._runner.settle(live)
        live.append(ids)
        return last

    def forget(self, name: str, park: bool) -> None:
        """Free a sequence's memory, its end written first if it is worth keeping."""
        if park:
            self._reuse.parking.drop_live(self._sequences[name])
        else:
            self._reuse.unpin(self._sequences.pop(name))

    def close(self) -> None:
        """End the store's threads."""
        if self.store is not None:
            self.store.close()


def exactness(model_type: str, folder: Path) -> Iterator[Cell]:
    """Write a conversation, free it, and restore it at a block's edge and at an anchor, each with several suffixes."""
    model, draw = build(model_type), np.random.default_rng(7)
    base, marks = _ids(draw, PROMPT), (EDGE, ANCHOR)
    kept, plain = Side(model, folder), Side(model, None)
    try:
        kept.turn("base", base, _ids(draw, 3), marks)
        kept.forget("base", park=True)
        for position in (EDGE, ANCHOR):
            for suffix in SUFFIXES:
                yield _compare(kept, plain, base, position, _ids(draw, suffix), _ids(draw, 2))
    finally:
        kept.close()


def _compare(kept: Side, plain: Side, base: list[int], position: int, more: list[int], reply: list[int]) -> Cell:
    more[0] += more[0] == base[position]
    prompt, marks = [*base[:position], *more], tuple(at for at in (EDGE, ANCHOR) if at <= position)
    stats, logits, _ = kept.turn("again", prompt, reply, marks)
    restored = kept.shapes
    kept.forget("again", park=False)
    _, other, _ = plain.turn("from nothing", prompt, reply, marks, cut=position)
    plain.forget("from nothing", park=False)
    finite = bool(np.isfinite(logits).all() and np.isfinite(other).all())
    return Cell(
        position=position,
        suffix=len(more),
        restored=stats.cached_disk_tokens,
        same_calls=restored == [shape for shape in plain.shapes if shape[0] >= position],
        bit_equal=finite and bool(np.array_equal(logits, other)),
        largest_difference=float(np.abs(logits - other).max()) if finite else None,
        same_tokens=finite and bool((logits.argmax(-1) == other.argmax(-1)).all()),
    )


def rewind(model_type: str, folder: Path) -> Rewind:
    """A long prompt and a long thought; the next turn goes back to before the thought."""
    model, draw = build(model_type), np.random.default_rng(11)
    base = _ids(draw, LONG)
    kept, plain = Side(model, folder), Side(model, None)
    try:
        written = kept.turn("chat", base, _ids(draw, THOUGHT), (LONG - 4,))[0].checkpoint_bytes
        prompt = [*base[: LONG - 4], *_ids(draw, NEXT)]
        plain.turn("warm", prompt, [], (LONG - 4,))  # kernels are made at their first call
        _, _, uncached = plain.turn("from nothing", prompt, [], (LONG - 4,))
        stats, _, cached = kept.turn("chat", prompt, [], (LONG - 4,))
    finally:
        kept.close()
    return Rewind(len(prompt), stats.cached_tokens, 1000 * cached, 1000 * uncached, stats.restore_bytes, written)


def _ids(draw: Any, count: int) -> list[int]:
    return [int(i) for i in draw.integers(5, VOCABULARY - 2, count)]


FAMILIES = tuple(CONFIGS)
