"""How fast the store moves bytes, in the cache layouts of big models, with random KV and no model.

    python benchmarks/restore.py [--layouts gemma4-e2b,qwen3.5-9b,…] [--tokens 1024,8192,32768] [--runs 5] [--json FILE]
                                 [--step 2048]

restore warm   a planned restore with the file in the page cache ÷ reading the same bytes and computing their crc32 in
               as many threads, each into one small buffer
restore fresh  the same restore ÷ the same reading into memory that is fresh from the system, and kept
restore cold   the same after the file's pages were dropped ÷ a plain sequential read, also after a drop
write          checkpointing the whole sequence until the disk has it ÷ a plain sequential write of the same bytes
peak           memory at most during the restore, over what it began with, less the allocated cache buffers

Each is paired with its yardstick run by run; the table shows the geometric mean of the ratios of speeds. `--step 85`
feeds so many tokens a request, as a tool loop does, so that a block is several records.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from mlxchat.engine import backend

backend.prepare()

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache
from mlxchat.cache.checkpoint import Checkpointer
from mlxchat.cache.layers import Layout
from mlxchat.cache.live import LiveCache
from mlxchat.cache.planner import Planner
from mlxchat.cache.reader import ALONE_BYTES, MOST_THREADS
from mlxchat.cache.restore import restore
from mlxchat.cache.store import Store
from mlxchat.cache.window import use_window_caches
from mlxchat.engine.cache_setup import reaches_of

CHUNK = 8 * 2**20
NAMESPACE = bytes(32)
KINDS = ("warm", "fresh", "cold", "write")


@dataclass(frozen=True)
class Shape:
    """Layers of one model: (count, KV heads, width) for global and window layers, (count, state shapes) for others."""

    full: tuple[int, int, int]
    window: tuple[int, int, int] = (0, 0, 0)
    size: int = 0
    recurrent: int = 0
    heads: int = 0

    def caches(self) -> list[Any]:
        made: list[Any] = [KVCache() for _ in range(self.full[0])]
        made += [RotatingKVCache(self.size) for _ in range(self.window[0])]
        return use_window_caches(made + [ArraysCache(2) for _ in range(self.recurrent)])


SHAPES = {
    "gemma4-e2b": Shape((3, 1, 512), (12, 1, 256), 512),
    "qwen3.5-9b": Shape((8, 4, 256), recurrent=24, heads=32),
    "qwen3.5-27b": Shape((16, 4, 256), recurrent=48, heads=48),
    "gemma4-31b": Shape((10, 4, 512), (50, 16, 256), 1024),
}


def opened(shape: Shape, folder: Path, budget: int = 16 * 2**30) -> Store:
    """A store that knows, as the program's own does, how much of each group a position needs."""
    return Store(folder, NAMESPACE, budget, 2**30, print, reaches=reaches_of(Layout.of(shape.caches())))


def rows(heads: int, count: int, width: int, seed: int) -> mx.array:
    """Random bfloat16 rows [1, heads, count, width], cheap to make and hard to compress."""
    return mx.random.randint(0, 2**16, (1, heads, count, width), mx.uint16, key=mx.random.key(seed)).view(mx.bfloat16)


def fed(shape: Shape, tokens: int, store: Store, ids: Any = None, step: int = 2048) -> tuple[LiveCache, int]:
    """A live sequence of `tokens`, checkpointed as prompts that grow by `step` are; and the bytes written.

    ids     int32 [tokens]; None: counting up
    """
    ids = np.arange(tokens) % 50_000 if ids is None else ids
    live = LiveCache(shape.caches(), Layout.of(shape.caches()), NAMESPACE)
    checkpointer = Checkpointer(store, live)
    for start in range(0, tokens, step):
        end = min(start + step, tokens)
        for number, leaf in enumerate(live.leaves):
            if isinstance(leaf, ArraysCache):
                state = mx.random.normal((1, shape.heads, 128, 128), key=mx.random.key(number))
                leaf.cache = [rows(1, 3, shape.heads * 256, number)[0], state]
            else:
                _, heads, width = shape.full if number < shape.full[0] else shape.window
                key, value = (rows(heads, end - start, width, 2 * number + i + start) for i in range(2))
                leaf.update_and_fetch(key, value)
        live.drop_views()
        mx.eval([leaf.cache if isinstance(leaf, ArraysCache) else [leaf.keys, leaf.values] for leaf in live.leaves])
        live.append(ids[start:end])
        checkpointer.blocks(start, end, wait=True)
        checkpointer.tail(end, wait=True)
        live.compact()
    if live.layout.states is not None:
        checkpointer.state(live.state_now("parked"), wait=True)
    return live, checkpointer.bytes_written


def restored(planner: Planner, store: Store, layout: Layout, shape: Shape, ids: Any, keys: list[bytes]) -> int:
    """Plan and restore to the end of `ids` into fresh caches; the bytes read."""
    live = LiveCache(shape.caches(), layout, NAMESPACE)
    plan = planner.plan(ids, keys, None, len(ids), 0)
    assert plan.position == len(ids), plan.reason
    worked, nbytes = restore(plan, store, live, ids, 1024)
    assert worked
    return nbytes


def read_plainly(descriptor: int, nbytes: int, buffers: list[memoryview], *, checked: bool) -> None:
    """Read `nbytes` from the file's start chunk by chunk, a thread for each buffer."""

    def work(number: int) -> None:
        crc = 0
        for at in range(number * CHUNK, nbytes, CHUNK * len(buffers)):
            part = buffers[number][: min(CHUNK, nbytes - at)]
            os.preadv(descriptor, [part], at)
            if checked:
                crc = zlib.crc32(part, crc)

    in_threads(work, len(buffers))


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run `work` once for each number under `count`, at the same time."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, count)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()


def read_into_fresh(descriptor: int, nbytes: int) -> None:
    """The same with the bytes kept, as a restore has to."""
    buffer = memoryview(bytearray(nbytes))

    def work(number: int) -> None:
        crc = 0
        for at in range(number * CHUNK, nbytes, CHUNK * MOST_THREADS):
            part = buffer[at : min(at + CHUNK, nbytes)]
            os.preadv(descriptor, [part], at)
            crc = zlib.crc32(part, crc)

    in_threads(work, MOST_THREADS)


def write_plainly(folder: Path, nbytes: int) -> float:
    """Seconds to write `nbytes` to a new file and have the disk hold them."""
    block = os.urandom(CHUNK)
    with tempfile.TemporaryFile(dir=folder) as file:

        def write() -> None:
            for at in range(0, nbytes, CHUNK):
                os.write(file.fileno(), block[: min(CHUNK, nbytes - at)])
            os.fdatasync(file.fileno())

        return timed(write)


def drop_pages(descriptor: int) -> None:
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def peak_over(work: Callable[[], object]) -> int:
    """The most resident memory while `work` runs, over what there was before (Linux)."""
    gc.collect()
    mx.clear_cache()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return 1024 * int(line.split()[1])


def geometric(ratios: list[float]) -> float:
    return exp(statistics.fmean(map(log, ratios)))


def measure(name: str, tokens: int, runs: int, folder: Path, step: int) -> dict[str, Any]:
    """One layout at one length."""
    shape = SHAPES[name]
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def note(kind: str, nbytes: int, plain: float, ours: float) -> None:
        ratios[kind].append(plain / ours)
        speeds[kind].append(nbytes / ours)

    store = opened(shape, folder)
    live, written = fed(shape, tokens, store, step=step)
    store.drain()
    planner, ids, keys = Planner(store, live.layout), np.array(live.ids), list(live.chain.keys)

    def restoring() -> int:
        return restored(planner, store, live.layout, shape, ids, keys)

    descriptor = store._scratch._handle()
    buffers = [memoryview(bytearray(CHUNK)) for _ in range(MOST_THREADS if written > ALONE_BYTES else 1)]
    nbytes = restoring()
    peak = peak_over(restoring)
    for _ in range(runs):
        note("warm", nbytes, timed(lambda: read_plainly(descriptor, nbytes, buffers, checked=True)), timed(restoring))
        note("fresh", nbytes, timed(lambda: read_into_fresh(descriptor, nbytes)), timed(restoring))
    for _ in range(runs):
        drop_pages(descriptor)
        plain = timed(lambda: read_plainly(descriptor, nbytes, buffers[:1], checked=False))
        drop_pages(descriptor)
        note("cold", nbytes, plain, timed(restoring))
    store.close()
    for _ in range(runs):
        ours, nbytes_out = write_all(live, opened(shape, folder))
        note("write", nbytes_out, write_plainly(folder, nbytes_out), ours)
    row: dict[str, Any] = {"layout": name, "tokens": tokens, "bytes_read": nbytes, "bytes_written": written}
    for kind, values in ratios.items():
        row[f"{kind}_ratio"], row[f"{kind}_gb_s"] = round(geometric(values), 3), round(geometric(speeds[kind]) / 1e9, 2)
    row["buffer_bytes"], row["peak_bytes"] = live.nbytes, peak
    return row


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def write_all(live: LiveCache, store: Store) -> tuple[float, int]:
    """Seconds until everything that the sequence still holds is on the disk, and its bytes."""
    checkpointer = Checkpointer(store, live)
    started = time.perf_counter()
    checkpointer.blocks(0, live.length, wait=True)
    store.drain()
    os.fdatasync(store._scratch._handle())
    seconds = time.perf_counter() - started
    store.close()
    return seconds, checkpointer.bytes_written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="1024,8192,32768")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--step", type=int, default=2048)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    columns = [
        "layout",
        "tokens",
        "read MiB",
        "warm",
        "GB/s",
        "fresh",
        "GB/s",
        "cold",
        "GB/s",
        "write",
        "GB/s",
        "peak/buffers",
    ]
    print(" ".join(f"{name:>12}" for name in columns))
    found = []
    for name in args.layouts.split(","):
        for tokens in map(int, args.tokens.split(",")):
            row = measure(name, tokens, args.runs, args.folder, args.step)
            found.append(row)
            cells = [name, tokens, row["bytes_read"] >> 20]
            for kind in KINDS:
                cells += [row[f"{kind}_ratio"], row[f"{kind}_gb_s"]]
            cells.append(round(row["peak_bytes"] / row["buffer_bytes"], 2))
            print(" ".join(f"{cell:>12}" for cell in cells), flush=True)
    document = json.dumps({"schema": "mlxchat.bench.restore/1", "step": args.step, "rows": found})
    print(document)
    if args.json:
        args.json.write_text(document)


if __name__ == "__main__":
    main()
