"""The only place that calls the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..cache.layers import pending_arrays
from ..cache.live import LiveCache
from ..cache.together import Together
from .image_spans import ImageSpan, overlapping
from .vision_model import VisionModel

UNLOGGED = 0  # the sequence number of runs that no later prompt can reuse: the log leaves them out


class CallLog:
    """One entry per model call: (sequence, start, ids, image hashes), and one per restore, marked as such.

    Decode feeds ids that are still lazy, so entries are written out when a request ends.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: list[tuple[dict[str, Any], mx.array | list[int]]] = []
        if path is not None:
            path.write_text("")

    def add(
        self,
        request: int,
        sequence: int,
        start: int,
        ids: mx.array | list[int],
        pictures: Sequence[ImageSpan] = (),
        **more: Any,
    ) -> None:
        """Note a call that feeds `ids` at position `start` of `sequence`, which holds `pictures`."""
        if self._path is not None and sequence != UNLOGGED:
            size = len(ids) if isinstance(ids, list) else ids.size
            met = overlapping(pictures, start, start + size)
            images = [{"start": span.start, "end": span.end, "digest": span.digest.hex()} for span in met]
            entry = {"request": request, "sequence": sequence, "start": start, "images": images, **more}
            self._entries.append((entry, ids))

    def flush(self) -> None:
        """Write what has been noted."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as out:
            for entry, ids in self._entries:
                values = ids if isinstance(ids, list) else ids.reshape(-1).tolist()
                out.write(json.dumps({**entry, "ids": values}) + "\n")
        self._entries.clear()


@dataclass(frozen=True)
class Fed:
    """One id (uint32 [1], lazy or not) for the end of one sequence. Numbers as in the call log."""

    request: int
    sequence: int
    live: LiveCache
    ids: mx.array


class ModelRunner:
    """Feeds ids to the model through one sequence's caches, or one id to each of several. Engine thread only.

    model    mlx-lm's module, or a VisionModel
    """

    def __init__(self, model: Any, log: CallLog) -> None:
        self._model = model
        self._together: Together | None = None
        self.log = log

    def forward(self, request: int, sequence: int, live: LiveCache, start: int, ids: mx.array) -> mx.array:
        """Feed `ids` (uint32 [S]) at position `start`; returns lazy logits [1, S, vocabulary].

        The caller notes the ids on `live` once it knows them, evaluates, captures blocks, then compacts.
        """
        pictures: Sequence[ImageSpan] = live.pictures  # type: ignore[assignment]
        self.log.add(request, sequence, start, ids, pictures)
        logits: mx.array
        if isinstance(self._model, VisionModel):
            logits = self._model(ids, live.caches, start, pictures, None if sequence == UNLOGGED else live.owner)
        else:
            logits = self._model(ids[None], cache=live.caches)
        live.drop_views()
        return logits

    def forward_together(self, fed: Sequence[Fed]) -> mx.array:
        """Feed several sequences one id each, in one call; returns lazy logits [sequences, 1, vocabulary].

        The caller notes the ids, evaluates and captures as after `forward`. Must hold: two sequences or more.
        """
        lives = [one.live for one in fed]
        if self._together is None or not self._together.serves(lives):
            self._together = Together(lives)
        for one in fed:
            self.log.add(one.request, one.sequence, one.live.length, one.ids, one.live.pictures)  # type: ignore[arg-type]
        caches, ids = self._together.caches(), mx.stack([one.ids for one in fed])
        logits: mx.array
        if isinstance(self._model, VisionModel):
            places = [(live.pictures, live.length) for live in lives]
            logits = self._model.together(ids, caches, places)  # type: ignore[arg-type]
        else:
            logits = self._model(ids, cache=caches)
        self._together.fed()
        return logits

    def part(self) -> None:
        """A sequence leaves: hold on to none of those that were fed together."""
        self._together = None

    @staticmethod
    def settle(live: LiveCache) -> None:
        """Evaluate everything the last call left lazy in the caches."""
        mx.eval(pending_arrays(live.caches))
