"""One architecture, its KV written once, and restored again and again: each restore against a run that never was.

Records written by prefill are held to the run from nothing, with the same cuts; records written by decode to the same
sequence that was never rewound.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from mlxchat.cache.layers import Layout
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.options import KVQuantization
from support import tiny_architectures, tiny_models
from support.driver import Driver

Writer = Literal["prefill", "decode"]
Point = Literal["edge", "anchor"]

KINDS = {
    "qwen3": "qwen3",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma3n": "gemma3n",
    "gpt_oss": "gpt_oss",
    "qwen3_5": "qwen3_5",
    "qwen3_next": "qwen3_next",
    "lfm2": "lfm2",
    "falcon_h1": "falcon_h1",
    "llama4": "llama4",
    "deepseek_v32": "deepseek_v32",
    "baichuan_m1": "baichuan_m1",
    "recurrent_gemma": "recurrent_gemma",
    "smollm3": "smollm3",
    "mamba2": "mamba2",
}
VISION_KINDS = {"mlx-vlm gemma3": "gemma3", "mlx-vlm gemma3n": "gemma3n"}
ARCHITECTURES = (*KINDS, *VISION_KINDS)


@cache
def architecture(name: str) -> Any:
    """The tiny model of a row of the matrix. Rows are 32 wide at least, so that they can be quantized."""
    if name in VISION_KINDS:
        return tiny_models.build_vision_text(VISION_KINDS[name])
    kind = KINDS[name]
    own = kind not in tiny_architectures.CONFIGS
    return tiny_models.build(kind, **tiny_models.SMALLER.get(kind, {}), **({"head_dim": 32} if own else {}))


def layout(model: Any) -> Layout:
    """How a model's layers are grouped."""
    return Layout.of(FreshCaches(model)())


@dataclass(frozen=True)
class Sizes:
    """The conversation that is written: ids of the prompt, of the reply, and where its marks are.

    Of a prefilled one the prompt is long, and both points lie in it; of a decoded one the reply is.
    """

    prompt: int
    reply: int
    edge: int
    anchor: int


LARGE: dict[Writer, Sizes] = {"prefill": Sizes(900, 3, 512, 700), "decode": Sizes(250, 530, 512, 780)}
SMALL: dict[Writer, Sizes] = {"prefill": Sizes(330, 2, 256, 300), "decode": Sizes(250, 12, 256, 262)}


@dataclass(frozen=True)
class Outcome:
    """position     how many ids were restored, and wanted: how many should have been
    equal        the logits of the suffix and of two more ids, bit for bit
    same_calls   the calls after the position are those of the other run
    uncut        whether the logits also equal those of the run without a cut at the position; None if not asked
    """

    position: int
    wanted: int
    from_disk: int
    equal: bool
    same_calls: bool
    uncut: bool | None

    @property
    def right(self) -> bool:
        """Whether the restore did what it promises."""
        return self.equal and self.same_calls and self.from_disk == self.position == self.wanted


class Bench:
    """One model whose conversation `base` has been written and freed. Close it at the end."""

    def __init__(
        self, model: Any, folder: Path, writer: Writer, sizes: Sizes, quantization: KVQuantization | None = None
    ) -> None:
        self.writer, self.sizes = writer, sizes
        self._rng = np.random.default_rng(29)
        self._base = self.draw(sizes.prompt + sizes.reply)
        self._plain = Driver(model, None, off=True, quantization=quantization)
        self._kept = Driver(model, None, quantization=quantization)
        self.cached = Driver(model, folder, quantization=quantization)
        self.layout = self.cached.reuse.layout
        self.cached.turn("base", *self._parted(), self.marks)
        self.cached.drop_live("base")
        if writer == "decode":
            self._kept.turn("base", *self._parted(), self.marks)

    @property
    def marks(self) -> dict[int, str]:
        """Where the prompt has anchors."""
        inside = (self.sizes.edge, self.sizes.anchor) if self.writer == "prefill" else ()
        return dict.fromkeys(inside, "user_start")

    @property
    def points(self) -> list[Point]:
        """Where this model can be restored to: a recurrent state is written at the end of a reply, not inside it."""
        assert self.layout is not None
        return ["anchor"] if self.writer == "decode" and self.layout.states is not None else ["edge", "anchor"]

    def draw(self, count: int) -> list[int]:
        """Random ids."""
        return [int(i) for i in self._rng.integers(5, 1000, count)]

    def restore(self, point: Point, suffix: int, *, compare_uncut: bool = False) -> Outcome:
        """Restore to the point, prefill `suffix` new ids, feed two more; the other run does the same."""
        position = self.sizes.edge if point == "edge" else self.sizes.anchor
        more, reply = self.draw(suffix), self.draw(2)
        if position < len(self._base) and more[0] == self._base[position]:
            more[0] += 1
        prompt = [*self._base[:position], *more]
        marks = {at: kind for at, kind in self.marks.items() if at <= position}
        stats, logits = self.cached.turn("again", prompt, reply, marks)
        restored = self.cached.shapes
        self.cached.reuse.unpin(self.cached.sequences.pop("again"))
        other, shapes = self._other_run(position, prompt, reply, marks)
        uncut = None
        if compare_uncut:
            before = {at: kind for at, kind in marks.items() if at != position}
            uncut = np.array_equal(logits, self._plain.turn("uncut", prompt, reply, before)[1])
        return Outcome(
            stats.cached_tokens,
            position,
            stats.cached_disk_tokens,
            np.array_equal(logits, other) and bool(np.isfinite(logits).all()),
            restored == [shape for shape in shapes if shape[0] >= position],
            uncut,
        )

    def decode_is_prefill(self, suffix: int = 2) -> bool:
        """Whether rows and states that decode made give the bits that a run from nothing gives."""
        position = self.sizes.anchor
        prompt, reply = [*self._base[:position], *self.draw(suffix)], self.draw(2)
        _, kept = self.cached.turn("again", prompt, reply)
        self.cached.reuse.unpin(self.cached.sequences.pop("again"))
        _, whole = self._plain.turn("whole", prompt, reply, extra_cut=position)
        return np.array_equal(kept, whole)

    def _other_run(
        self, position: int, prompt: list[int], reply: list[int], marks: dict[int, str]
    ) -> tuple[np.ndarray, list[tuple[int, int]]]:
        if self.writer == "prefill":
            _, logits = self._plain.turn("from nothing", prompt, reply, marks, extra_cut=position)
            return logits, self._plain.shapes
        with self._never_rewound(position) as name:
            stats, logits = self._kept.turn(name, prompt, reply, marks)
            assert (stats.cached_tokens, stats.rewind_tokens) == (position, 0)
        return logits, self._kept.shapes

    @contextmanager
    def _never_rewound(self, position: int) -> Iterator[str]:
        """A sequence that was decoded up to `position` and no further."""
        if position == self.sizes.anchor:
            held = self._kept.sequences["base"]
            self._kept.sequences["copy"] = copied = copy.copy(held)
            copied.live = copy.deepcopy(held.live)
        else:
            prompt, said = self._parted()
            self._kept.turn("copy", prompt, said[: position - len(prompt)], self.marks)
        yield "copy"
        del self._kept.sequences["copy"]

    def _parted(self) -> tuple[list[int], list[int]]:
        return self._base[: self.sizes.prompt], self._base[self.sizes.prompt :]

    def close(self) -> None:
        """End the store's threads; no trouble may have been told."""
        self.cached.close()
        assert self.cached.troubles == []
        mx.clear_cache()
