"""The scripted model's two halves: a sampler whose words come from a file, and a gate that holds the engine anywhere.

The model stays real (its forward passes fill a real KV cache); only the choice of each id is taken from the script.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..errors import DataError

if TYPE_CHECKING:
    from .request import Run

_POLL_SECONDS = 0.005


class Script:
    """JSON lines, one reply each: {"text": words, control tokens allowed} or {"ids": [...]}; the last one repeats.

    The end token is added unless the line says "open": true (then the reply runs into its limit).
    """

    def __init__(self, path: Path, encode: Callable[[str], list[int]], end_id: int) -> None:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise DataError(f"the script {path} is empty")
        self._replies = [self._ids(json.loads(line), encode, end_id) for line in lines]
        self._next = 0
        self._end_id = end_id

    @staticmethod
    def _ids(reply: dict[str, Any], encode: Callable[[str], list[int]], end_id: int) -> list[int]:
        ids = list(reply["ids"]) if "ids" in reply else encode(reply["text"])
        return ids if reply.get("open") else [*ids, end_id]

    def sampler(self) -> Callable[[mx.array], mx.array]:
        """A sampler for the next request: [1, vocabulary] log probabilities in, the script's next id out."""
        ids, end_id = self._replies[min(self._next, len(self._replies) - 1)], self._end_id
        self._next += 1
        position = 0

        def sample(logprobs: mx.array) -> mx.array:
            nonlocal position
            token = ids[position] if position < len(ids) else end_id
            position += 1
            # Tied to the logits, so that the forward pass is really run.
            return (mx.argmax(logprobs, axis=-1) * 0 + token).astype(mx.uint32)

        return sample


class Gate:
    """Holds the engine where a test says, through two files in a folder.

    The test writes a point's name into `hold`; the engine, on reaching it, writes the name to `held` and waits until
    `hold` names another point or is gone, or the request is cancelled. Points are "REQUEST.prefill.CALL" (before that
    call) and "REQUEST.token.N" (before the N-th sampled id is read), all counted from 1.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def reach(self, point: str, cancelled: Callable[[], bool]) -> None:
        """Wait here if the test holds this point."""
        if self._folder is None:
            return
        while self._held_at(point) and not cancelled():
            (self._folder / "held").write_text(point)
            time.sleep(_POLL_SECONDS)

    def stops(self, run: Run, point: str) -> bool:
        """Whether the run is over before `point` (of its request): it was cancelled, perhaps while it was held here."""
        self.reach(f"{run.request.number}.{point}", run.request.cancelled.is_set)
        if run.request.cancelled.is_set():
            run.finish = "interrupted"
        return run.finish is not None

    def _held_at(self, point: str) -> bool:
        assert self._folder is not None
        try:
            return (self._folder / "hold").read_text().strip() == point
        except FileNotFoundError:
            return False
