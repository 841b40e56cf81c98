"""A long synthetic trace through what looks prompts up: trie, planner, index. The model is a stub that keeps no KV.

Conversations take turns, each growing by a tool loop's small steps, so that most of each prompt was fed before. Records
are of one byte a row: what is timed is the looking up and the bookkeeping, not the copying.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mlxchat.cache.keys import BLOCK, Chain, Ids, Place
from mlxchat.cache.layers import Layout, RowGroup
from mlxchat.cache.planner import Planner
from mlxchat.cache.records import TensorSpec
from mlxchat.cache.row_readers import GlobalRows
from mlxchat.cache.store import Store
from mlxchat.cache.trie import SequenceTrie

LAYOUT = Layout((RowGroup("global", None, ((0, GlobalRows()),)),), None, 1)
NAMESPACE = b"trace scale".ljust(32)
STEP = 60  # new tokens of a request, its answer included
PARTS = ("trie", "keys", "planner", "index")


@dataclass(frozen=True)
class Asked:
    """One request: what was found of it, and by part the seconds its thread worked (others may share the cores)."""

    prompt: int
    common: int
    position: int
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def prompts(requests: int, tokens: int, conversations: int, seed: int = 0) -> Iterator[Ids]:
    """Interleaved conversations that share a head and end at `tokens`; the last quarter of each grows in steps."""
    rng = np.random.default_rng(seed)
    turns = -(-requests // conversations)
    head = rng.integers(0, 50_000, tokens // 4).astype(np.int32)
    own = [rng.integers(0, 50_000, tokens - len(head)).astype(np.int32) for _ in range(conversations)]
    for number in range(requests):
        turn, which = divmod(number, conversations)
        left = (turns - 1 - turn) * STEP
        yield np.concatenate([head, own[which][: max(STEP, len(own[which]) - left)]])


class Trace:
    """The parts that a request meets, in the order in which it meets them."""

    def __init__(self, folder: Path, budget: int = 1 << 30) -> None:
        self.store = Store(folder, NAMESPACE, budget, 1 << 28, print)
        self.planner = Planner(self.store, LAYOUT)
        self.trie = SequenceTrie()
        self.chain = Chain(NAMESPACE)
        self._ids = np.empty(0, np.int32)

    def ask(self, ids: Ids) -> Asked:
        """Look one prompt up, then note it as fed."""
        clock, seconds = time.thread_time, {}
        at = clock()
        common = self.trie.longest_match(ids)
        seconds["trie"] = clock() - at
        at = clock()
        chain = Chain(NAMESPACE)
        chain.append(ids)
        seconds["keys"] = clock() - at
        at = clock()
        plan = self.planner.plan(ids, chain.keys, None, len(ids) - 1, common)
        seconds["planner"] = clock() - at
        at = clock()
        self._keep(ids, chain, plan.position)
        self.store.unpin(plan.entries)
        seconds["index"] = clock() - at
        at = clock()
        self.trie.add(ids)
        seconds["trie"] += clock() - at
        return Asked(len(ids), common, plan.position, seconds)

    def _keep(self, ids: Ids, chain: Chain, start: int) -> None:
        """The records that prefilling from `start` would make: new blocks, and the tail."""
        ends = [*range((start // BLOCK + 1) * BLOCK, len(ids) + 1, BLOCK)]
        for end in [*ends, len(ids)] if len(ids) % BLOCK else ends:
            rows = (end - 1) % BLOCK + 1
            tensor = TensorSpec("0.0", "U8", (1, rows, 1))
            place = Place.at(chain.keys, ids, end)
            self.store.submit(place, "global", end, end - rows, [tensor], [bytes(rows)], wait=True)

    def close(self) -> None:
        self.store.close()
