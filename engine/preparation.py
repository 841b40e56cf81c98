"""Prefill before the question: what the next prompt will surely hold, and what is being typed.

The work is done on the live sequence itself, call by call, and gives way to a real request after the call that is
running. A request that goes another way rewinds as it would have anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

import mlx.core as mx
import numpy as np

from ..cache.keys import as_elements
from .ahead import AheadRequest, Preview
from .cuts import PREFILL_STEP, calls, kept_whole
from .preview import Previewer
from .reuse import Reuse
from .runner import ModelRunner
from .sequence import Sequence
from .stats import RequestStats

Counting = Callable[[RequestStats], AbstractContextManager[None]]


class Preparation:
    """The one piece of such work at hand; a newer one takes its place. Engine thread only."""

    def __init__(self, preview: Previewer, counting: Counting, runner: ModelRunner, reuse: Reuse) -> None:
        self._preview = preview
        self._counting = counting
        self._runner = runner
        self._reuse = reuse
        self._request: AheadRequest | None = None
        self._found: Preview | None = None
        self._calls: deque[tuple[int, int]] = deque()

    @property
    def request(self) -> AheadRequest | None:
        """What is being worked at."""
        return self._request

    def offer(self, request: AheadRequest) -> None:
        """Take this up at the next step, in place of what was there."""
        self.drop()
        self._request = request

    def drop(self) -> None:
        """Leave it where it stands: between two calls."""
        if self._request is not None:
            self._request.done.set()
        self._request, self._found = None, None
        self._calls.clear()

    def step(self, sequence: Sequence) -> None:
        """One model call at most. A failure costs the work done ahead, nothing else."""
        request = self._request
        assert request is not None
        try:
            if request.cancelled.is_set():
                self.drop()
            elif self._found is None:
                self._begin(request, sequence)
            else:
                self._call(request, sequence, self._found)
            if not self._calls:
                self.drop()
        except Exception:
            self._reuse.abandon(sequence)
            self.drop()
        finally:
            self._runner.log.flush()

    def _begin(self, request: AheadRequest, sequence: Sequence) -> None:
        found = self._preview(request, sequence)
        if found is None:
            return
        elements = as_elements(found.ids, found.pictures)
        if self._reuse.waiting(sequence, elements) < request.least:
            return
        position = self._reuse.begin_ahead(sequence, elements, found.open, found.pictures)
        live = sequence.live
        assert live is not None
        if position:
            held = found.ids[:position].tolist()
            self._runner.log.add(request.number, sequence.number, 0, held, found.pictures, restored="live")
        ends = {*range(PREFILL_STEP, len(found.ids), PREFILL_STEP), *found.marks, found.open, len(found.ids)}
        self._found = found
        self._calls.extend(calls(position, kept_whole(ends, found.pictures if found.whole else ())))

    def _call(self, request: AheadRequest, sequence: Sequence, found: Preview) -> None:
        start, end = self._calls.popleft()
        live = sequence.live
        assert live is not None
        fed = mx.array(found.ids[start:end].astype(np.uint32))
        with self._counting(sequence.advance.cost if sequence.advance is not None else RequestStats()):
            self._runner.forward(request.number, sequence.number, live, start, fed)
        self._runner.settle(live)
        live.append(found.ids[start:end])
        if end <= found.open:
            self._reuse.record_ahead(sequence, start, end, found.marks.get(end), last=end == found.open)
        else:
            live.compact()  # words that aren't sent yet stay off the disk
        mx.clear_cache()
