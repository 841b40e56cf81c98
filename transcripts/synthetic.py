"""Ids for traces that hold lengths and block names only: made up, equal where the names are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from ..cache.keys import Ids
from .jobs import Job


class SyntheticIds:
    """Draws from the ordinary ids of one vocabulary, the control tokens left out."""

    def __init__(self, vocabulary: int, control: Iterable[int]) -> None:
        self._ordinary = np.setdiff1d(np.arange(vocabulary, dtype=np.int32), np.array(list(control), np.int32))

    def prompt(self, job: Job) -> Ids:
        """As many ids as were recorded; past the named blocks they are the request's own."""
        blocks = [self._drawn(name, job.block_tokens) for name in job.hash_ids]
        named = np.concatenate(blocks)[: job.usage.prompt_tokens]
        rest = (job.usage.prompt_tokens or 0) - len(named)
        return np.concatenate([named, self._drawn(f"prompt {job.number}", rest)])

    def reply(self, job: Job) -> tuple[int, ...]:
        """The answer's ids."""
        return tuple(self._drawn(f"reply {job.number}", job.usage.completion_tokens or 0).tolist())

    def _drawn(self, name: str, count: int) -> Ids:
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        return self._ordinary[np.random.default_rng(seed).integers(0, len(self._ordinary), max(0, count))]
