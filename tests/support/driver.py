"""Runs token ids through a model and the KV store as the engine does, without a tokenizer: prompt in, logits out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlxchat.cache.keys import namespace_key
from mlxchat.cache.layers import Layout
from mlxchat.cache.memory import Memory
from mlxchat.cache.store import Store
from mlxchat.engine.cache_setup import reaches_of
from mlxchat.engine.cuts import calls, cuts
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.marks import BRANCHES
from mlxchat.engine.options import KVQuantization
from mlxchat.engine.reuse import Reuse
from mlxchat.engine.runner import CallLog, ModelRunner
from mlxchat.engine.sequence import Sequence
from mlxchat.engine.stats import RequestStats


class Driver:
    """One model with (folder given) or without a store. `off` recomputes every prompt from nothing."""

    def __init__(
        self,
        model: Any,
        folder: Path | None,
        *,
        off: bool = False,
        window: bool = True,
        quantization: KVQuantization | None = None,
        memory: Memory | None = None,
        budget: int = 1 << 30,
        queue: int = 1 << 28,
        **store: Any,
    ) -> None:
        make: Callable[[], list[Any]] = FreshCaches(model, quantization)
        if not window:
            make = partial(make_prompt_cache, model)
        self.troubles: list[str] = []
        self.runner = ModelRunner(model, CallLog(None))
        layout = Layout.of(FreshCaches(model, quantization)())
        namespace = namespace_key({"layout": layout.describe()})
        self.store = (
            Store(folder, namespace, budget, queue, self.troubles.append, reaches=reaches_of(layout), **store)
            if folder is not None and not off
            else None
        )
        self.reuse = Reuse(make, layout, self.store, namespace, off=off, memory=memory)
        self.sequences: dict[str, Sequence] = {}
        self.shapes: list[tuple[int, int]] = []

    def sequence(self, name: str) -> Sequence:
        return self.sequences.setdefault(name, Sequence(len(self.sequences) + 1, name))

    def turn(
        self,
        name: str,
        prompt: list[int],
        reply: list[int],
        marks: Mapping[int, str] | None = None,
        *,
        drops: bool = False,
        stable: int | None = None,
        step: int = 2048,
        extra_cut: int | None = None,
    ) -> tuple[RequestStats, np.ndarray]:
        """Prefill `prompt`, feed `reply` id by id; stats, and the last logits of each call from the prompt's end on."""
        marks = dict(marks or {})
        sequence, stats = self.sequence(name), RequestStats()
        ids = np.array(prompt, np.int32)
        live = self.reuse.begin(sequence, ids, stats)
        sequence.stable, sequence.drops_reply = stable if stable is not None else len(prompt), False
        ends = cuts(len(ids), marks, step)
        if extra_cut:
            ends = sorted({*ends, extra_cut})
        logits = []
        self.shapes = []
        for start, end in calls(live.length, ends):
            out = self._call(sequence, live, ids[start:end])
            if end == len(ids):
                logits.append(out)
            tail = end == len(ids) - 1 or marks.get(end) in BRANCHES
            self.reuse.record_prefill(sequence, start, end, marks.get(end), tail)
        for token in reply:
            logits.append(self._call(sequence, live, np.array([token], np.int32)))
            self.reuse.record_decode(sequence, drops)
        sequence.drops_reply = drops
        self.reuse.end(sequence)
        live.check()
        if self.store is not None:
            self.store.check()
        return stats, np.stack(logits)

    def _call(self, sequence: Sequence, live: Any, ids: np.ndarray) -> np.ndarray:
        self.shapes.append((live.length, len(ids)))
        logits = self.runner.forward(0, sequence.number, live, live.length, mx.array(ids.astype(np.uint32)))
        last = logits[0, -1]
        mx.eval(last)
        self.runner.settle(live)
        live.append(ids)
        return np.array(last.astype(mx.float32))

    def drop_live(self, name: str) -> None:
        self.reuse.parking.drop_live(self.sequences[name])

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
