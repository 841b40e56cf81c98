"""Several sequences of one tiny model, fed together in any order, held to the same sequences fed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlxchat.cache.layers import Layout
from mlxchat.cache.live import LiveCache
from mlxchat.engine.attention import attend_per_sequence
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.options import KVQuantization
from mlxchat.engine.runner import UNLOGGED, CallLog, Fed, ModelRunner
from mlxchat.engine.vision_features import FeatureCache
from mlxchat.engine.vision_model import VisionModel
from support import tiny_models, vision_models

LENGTHS = (3, 40, 131, 260)
"""Of the prompts: within a window of 128 and past it, within a block and past it."""
REPLY = 8


@dataclass
class Bench:
    """A model and what each sequence gives alone: logits [vocabulary] of each id of its reply."""

    model: Any
    runner: ModelRunner
    make: FreshCaches
    prompts: list[list[int]]
    replies: list[list[int]]
    alone: list[list[np.ndarray]] = field(default_factory=list)

    @classmethod
    def of(cls, kind: str, quantization: KVQuantization | None = None) -> Bench:
        if kind == "qwen3_vl":
            config = {**vision_models.SPECS[kind].config, "model_type": kind, "vocab_size": vision_models.VOCAB}
            module = vision_models.build(config, kind)  # type: ignore[arg-type]
            model, language = VisionModel(module, None, FeatureCache(most_bytes=0)), module.language_model
        else:
            wide = {"head_dim": 32} if quantization is not None else {}  # a group is no wider than a row
            module = language = model = tiny_models.build(kind, **tiny_models.SMALLER.get(kind, {}), **wide)
        attend_per_sequence(module)
        rng = np.random.default_rng(11)
        prompts = [rng.integers(5, 150, length).tolist() for length in LENGTHS]
        replies = [rng.integers(5, 150, REPLY).tolist() for _ in LENGTHS]
        made = cls(module, ModelRunner(model, CallLog(None)), FreshCaches(language, quantization), prompts, replies)
        for number, reply in enumerate(replies):
            live = made.begun(number)
            made.alone.append([made._single(live, token) for token in reply])
        return made

    def begun(self, number: int) -> LiveCache:
        """A sequence that holds its prompt."""
        caches = self.make()
        live, ids = LiveCache(caches, Layout.of(caches), b""), self.prompts[number]
        self.runner.forward(0, UNLOGGED, live, 0, mx.array(ids, mx.uint32))
        self._taken(live, ids)
        return live

    def _single(self, live: LiveCache, token: int) -> np.ndarray:
        logits = self.runner.forward(0, UNLOGGED, live, live.length, mx.array([token], mx.uint32))
        seen = np.array(logits[0, -1])
        self._taken(live, [token])
        return seen

    def feed(self, lives: Sequence[LiveCache], tokens: Sequence[int]) -> list[np.ndarray]:
        """One id to each; the logits of each."""
        if len(lives) == 1:
            return [self._single(lives[0], tokens[0])]
        fed = [Fed(0, UNLOGGED, live, mx.array([token], mx.uint32)) for live, token in zip(lives, tokens, strict=True)]
        logits = self.runner.forward_together(fed)
        seen = [np.array(logits[row, -1]) for row in range(len(lives))]
        for live, token in zip(lives, tokens, strict=True):
            self._taken(live, [token])
        return seen

    def _taken(self, live: LiveCache, ids: list[int]) -> None:
        self.runner.settle(live)
        live.append(ids)
        live.compact()
        live.check()


@dataclass(frozen=True)
class Step:
    """members     the sequences that are fed
    taken_back  those of them that are rewound by one id afterwards, as an end token is
    """

    members: frozenset[int]
    taken_back: frozenset[int] = frozenset()


def differences(bench: Bench, steps: Sequence[Step]) -> Iterator[float]:
    """How far each id's logits are from those of its sequence alone, as the largest difference."""
    lives = [bench.begun(number) for number in range(len(LENGTHS))]
    fed = [0] * len(lives)
    for step in steps:
        members = [number for number in sorted(step.members) if fed[number] < REPLY]
        if not members:
            continue
        states = lives[0].layout.states is not None
        before = {number: lives[number].state_now("undo") if states else None for number in members}
        seen = bench.feed([lives[n] for n in members], [bench.replies[n][fed[n]] for n in members])
        for number, logits in zip(members, seen, strict=True):
            yield float(np.abs(logits - bench.alone[number][fed[number]]).max())
            fed[number] += 1
            if number in step.taken_back:
                take_back(lives[number], before[number])
                fed[number] -= 1


def take_back(live: LiveCache, before: Any) -> None:
    """As the loop does it."""
    if before is not None:
        live.states.append(before)
    live.trim(live.length - 1)
    if before is not None:
        live.states.remove(before)
    live.check()
