"""How the cost of a turn grows: with the length of its context, and with the number of conversations that are stored.

    python benchmarks/growth.py [--tokens 1024,…,131072] [--conversations 1,…,1000] [--layout gemma4-e2b] [--json FILE]

No model: random KV in the cache layout of a big one. For each length a sequence is stored, let go, and restored:
`look up` is the time that ids, chain keys, trie and planner take before anything is read, `restore` the rest. `held` is
what a live sequence of that length keeps in memory; with none live nothing is. For each number of conversations, all of
2,000 tokens on one system prompt of 1,024, the last one is looked up and restored.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mlxchat.cache.keys import Chain
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Planner
from mlxchat.cache.restore import restore
from mlxchat.cache.store import Store
from mlxchat.cache.trie import SequenceTrie
from restore import NAMESPACE, SHAPES, fed, opened

RUNS = 5


@dataclass
class Row:
    """One point of a curve; times are the medians of several runs."""

    tokens: int
    conversations: int
    look_up_ms: float
    restore_ms: float
    read_bytes: int
    held_bytes: int
    file_bytes: int
    records: int

    def line(self) -> str:
        sizes = " ".join(f"{value / 2**20:10.1f}" for value in (self.read_bytes, self.held_bytes, self.file_bytes))
        times = f"{self.look_up_ms:10.2f} {self.restore_ms:11.1f}"
        return f"{self.tokens:8} {self.conversations:14} {times} {sizes} {self.records:8}"


def measured(store: Store, trie: SequenceTrie, layout: str, ids: Any, conversations: int) -> Row:
    """Look the last sequence up and restore it, several times."""
    shape = SHAPES[layout]
    looked, restored = [], []
    read = held = 0
    for _ in range(RUNS):
        live = LiveCache(shape.caches(), _layout(layout), NAMESPACE)
        planner = Planner(store, live.layout)
        started = time.perf_counter()
        chain = Chain(NAMESPACE)
        chain.append(ids)
        common = trie.longest_match(ids)
        plan = planner.plan(ids, list(chain.keys), None, len(ids), 0)
        looked.append(time.perf_counter() - started)
        assert (plan.position, common) == (len(ids), len(ids))
        started = time.perf_counter()
        worked, read = restore(plan, store, live, ids, 1024)
        restored.append(time.perf_counter() - started)
        assert worked
        held = live.nbytes
        del live
        gc.collect()
    stats = store.stats()
    middle = [1000 * sorted(times)[RUNS // 2] for times in (looked, restored)]
    return Row(len(ids), conversations, *middle, read, held, stats.file_bytes, stats.records)


def _layout(name: str) -> Any:
    from mlxchat.cache.layers import Layout

    return Layout.of(SHAPES[name].caches())


def by_length(layout: str, lengths: list[int], folder: Path) -> list[Row]:
    """One conversation, longer and longer."""
    rows = []
    for tokens in lengths:
        store, trie = opened(SHAPES[layout], folder, 64 * 2**30), SequenceTrie()
        live, _ = fed(SHAPES[layout], tokens, store)
        ids = np.array(live.ids)
        trie.add(ids)
        store.drain()
        del live
        rows.append(measured(store, trie, layout, ids, 1))
        print(rows[-1].line(), flush=True)
        store.close()
    return rows


def by_number(layout: str, numbers: list[int], folder: Path) -> list[Row]:
    """More and more conversations that begin with the same 1,024 tokens."""
    rows = []
    store, trie = opened(SHAPES[layout], folder, 64 * 2**30), SequenceTrie()
    rng = np.random.default_rng(1)
    made = 0
    for wanted in numbers:
        while made < wanted:
            ids = np.concatenate([np.arange(1024), rng.integers(0, 50_000, 976)]).astype(np.int32)
            fed(SHAPES[layout], len(ids), store, ids)
            trie.add(ids)
            made += 1
        store.drain()
        end = len(ids) // 256 * 256
        rows.append(measured(store, trie, layout, ids[:end], made))
        print(rows[-1].line(), flush=True)
    store.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1024,4096,16384,65536,131072")
    parser.add_argument("--conversations", default="1,10,100,1000")
    parser.add_argument("--layout", default="gemma4-e2b", choices=SHAPES)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print("  tokens  conversations look up ms  restore ms   read MiB   held MiB   file MiB  records")
    rows = by_length(args.layout, list(map(int, args.tokens.split(","))), args.folder)
    rows += by_number(args.layout, list(map(int, args.conversations.split(","))), args.folder)
    value = {"schema": "mlxchat.bench.growth/1", "layout": args.layout, "rows": [asdict(row) for row in rows]}
    print(json.dumps(value))
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    main()
