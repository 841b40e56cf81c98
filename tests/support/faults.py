"""Ways to damage a restore, each of which the exactness tests must notice. All take pytest's monkeypatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
from mlxchat.cache import planner, restore, row_readers
from mlxchat.cache.coverage import Piece
from mlxchat.cache.layers import row_bytes
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Plan
from mlxchat.cache.window import WindowKVCache


def off_by_one(monkeypatch: Any) -> None:
    real = row_readers.GlobalRows.install
    monkeypatch.setattr(
        row_readers.GlobalRows, "install", lambda self, c, t, position, rows: real(self, c, t, position - 1, rows)
    )
    monkeypatch.setattr(LiveCache, "check", lambda self: None)


def blocks_swapped(monkeypatch: Any) -> None:
    real = restore.Buffers.sink

    def sink(self: Any, piece: Piece) -> Any:
        if piece.end > 512:
            return real(self, piece)
        names = {spec.name: spec.shape for spec in piece.entry.header.tensors}
        start = 256 if piece.start == 0 else 0

        def copy(tensors: dict[str, memoryview]) -> None:
            for name, view in self.views.items():
                rows = np.frombuffer(tensors[name], np.uint8).reshape(*names[name][:2], -1)
                view[:, start : start + 256] = rows

        return copy

    monkeypatch.setattr(restore.Buffers, "sink", sink)


def row_short(monkeypatch: Any) -> None:
    real = restore.Buffers.sink
    monkeypatch.setattr(restore.Buffers, "sink", lambda self, piece: real(self, replace(piece, end=piece.end - 1)))


def tail_short_by_one(monkeypatch: Any) -> None:
    real = restore.Buffers.sink

    def sink(self: Any, piece: Piece) -> Any:
        return real(self, replace(piece, end=piece.end - 1) if piece.end % 256 else piece)

    monkeypatch.setattr(restore.Buffers, "sink", sink)


def window_row_missing(monkeypatch: Any) -> None:
    """The oldest row that the first call sees: no argmax notices it, the logits do."""
    real = row_readers.WindowRows.install

    def install(self: Any, cache: Any, tensors: list[Any], position: int, rows: int) -> None:
        oldest = rows - min(rows, self.window - 1)
        for tensor in tensors:
            row_bytes(tensor)[:, oldest] = 0
        real(self, cache, tensors, position, rows)

    monkeypatch.setattr(row_readers.WindowRows, "install", install)


def ring_order(monkeypatch: Any) -> None:
    real = row_readers.WindowRows.install

    def install(self: Any, cache: Any, tensors: list[Any], position: int, rows: int) -> None:
        turned = [mx.concatenate([t[..., 1:rows, :], t[..., :1, :], t[..., rows:, :]], axis=2) for t in tensors]
        real(self, cache, turned, position, rows)

    monkeypatch.setattr(row_readers.WindowRows, "install", install)


def state_zeroed(monkeypatch: Any) -> None:
    monkeypatch.setattr(restore.TensorSink, "into", lambda state: lambda tensors: None)


def state_of_another_position(monkeypatch: Any) -> None:
    real = planner.Planner._build

    def build(self: Any, prospect: Any, position: int, reason: Any) -> Plan:
        plan = real(self, prospect, position, reason)
        other = min(prospect.states, default=position)
        return plan if plan.state is None or other == position else replace(plan, state=prospect.states[other])

    monkeypatch.setattr(planner.Planner, "_build", build)


def poison(live: Any, upto: int = 0) -> int:
    """NaN in every row of every buffer from `upto` rows before the end of what is held; the number of rows."""
    poisoned = 0
    for group in live.layout.rows:
        for index, _ in group.leaves:
            leaf = live.leaves[index]
            held = leaf._idx if isinstance(leaf, WindowKVCache) else leaf.offset
            for name in ("keys", "values"):
                tensor = getattr(leaf, name)
                keep = mx.arange(tensor.shape[2])[None, None, :, None] < held - upto
                setattr(leaf, name, mx.where(keep, tensor, mx.nan))
                poisoned += tensor.shape[2] - held + upto
            mx.eval(leaf.keys, leaf.values)
    return poisoned
