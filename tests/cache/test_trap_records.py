"""Faults that users of other engines reported, one test each, named after its report: what is stored, and for how long.

The others are in test_trap_restores.py and in the table of docs/architecture.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache.records import RecordHeader
from mlxchat.engine import weights
from support import tiny_models, trap_faults
from support.driver import Driver
from support.kvstore import FaultyFiles, io_error
from support.trap_rig import Rig, Traps, asked, entries, forget

pytestmark = pytest.mark.exact

TRAPS = Traps()


def written(rig: Rig, name: str = "qwen3", count: int = 600, **how: Any) -> tuple[tuple[Driver, Driver], list[int]]:
    """Drivers whose conversation `a` is on disk only, and its prompt."""
    drivers = rig.pair(name, **how)
    prompt = rig.draw(count)
    asked(drivers, "a", prompt, [])
    drivers[0].drop_live("a")
    entries(drivers[0])
    return drivers, prompt


@TRAPS.add("mlx-examples#977", trap_faults.whole_buffers_stored)
def mlx_examples_977_records_hold_rows_and_a_header(rig: Rig) -> None:
    (cached, _), _ = written(rig, count=300)
    layers, heads, width = 3, 2, 32
    for entry in entries(cached):
        header: RecordHeader = entry.header
        rows = header.position - header.row_start
        assert header.payload_bytes == rows * layers * 2 * heads * width * 4
        assert entry.extent.length == header.blob_offset + len(header.safetensors_header) + header.payload_bytes
        assert header.blob_offset + len(header.safetensors_header) < 3000
    assert sum(entry.header.position - entry.header.row_start for entry in entries(cached)) == 300


@TRAPS.add("vllm-mlx#678, #775; omlx#2250", trap_faults.stale_head_room, trap_faults.ids_not_compared)
def vllm_mlx_678_a_canary_never_shows_elsewhere(rig: Rig) -> None:
    """A's rows are nowhere in what B restores, and what follows B's rows is nothing."""
    drivers, canary = written(rig, count=300)
    other = rig.draw(300)
    assert asked(drivers, "b", other, []).cached_tokens == 0
    drivers[0].drop_live("b")
    secret = drivers[0].reuse.fresh()
    assert secret.length == 0
    stats = asked(drivers, "c", [*other, *rig.draw(3)], [])
    assert stats.cached_tokens == 300
    held = drivers[0].sequences["c"].live
    of_a = set(_rows(drivers, canary))
    for leaf in held.leaves:
        for tensor in (leaf.keys, leaf.values):
            rows = np.array(tensor)[0]
            assert not rows[:, leaf.offset :].any(), "head-room that holds something"
            assert not of_a & {row.tobytes() for row in rows[0, : leaf.offset]}


def _rows(drivers: tuple[Driver, Driver], ids: list[int]) -> list[bytes]:
    """Rows of the first head of every layer, as a run from nothing has them; those all layers share are left out."""
    _, plain = drivers
    plain.turn("canary", ids, [])
    live = plain.sequences["canary"].live
    return [row.tobytes() for leaf in live.leaves[1:] for row in np.array(leaf.keys)[0, 0, : len(ids)]]


@TRAPS.add("mlx-lm#1256, mlx-engine PR#326", trap_faults.arrays_on_the_readers_thread)
def mlx_lm_1256_restores_on_another_thread_than_the_first(rig: Rig, seconds: float = 0.0) -> None:
    drivers, prompt = written(rig, count=300)
    failures: list[BaseException] = []
    done = 0

    def run() -> None:
        nonlocal done
        until = time.monotonic() + seconds
        try:
            while not done or time.monotonic() < until:
                fresh = rig.draw(300)
                drivers[0].turn("load", fresh, [])  # the writer is at work while the reader reads
                # of five drawn ids the first may be one that followed before
                assert 300 <= drivers[0].turn("b", [*prompt, *rig.draw(5)], [])[0].cached_tokens < 305
                drivers[0].drop_live("b")
                drivers[0].sequences["load"].live = None
                done += 1
        except BaseException as error:
            failures.append(error)
        finally:
            mx.clear_streams()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(seconds + 120)
    assert failures == []
    assert done


WRITING_ROOM = ("files", "scratch", "records", "keys", "index", "lookup", "room", "writer", "reader", "store")


@TRAPS.add("omlx#1437", lambda patch: patch.setattr(sys.modules[__name__], "WRITING_ROOM", ("writer", "checkpoint")))
def omlx_1437_the_writers_modules_know_no_mlx(rig: Rig) -> None:
    script = "import sys\n" + "".join(f"import mlxchat.cache.{name}\n" for name in WRITING_ROOM)
    script += "print(any(name.split('.')[0] == 'mlx' for name in sys.modules))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@TRAPS.add("omlx#2255; sglang#24758: one flipped byte, a truncated record", trap_faults.nothing_verified)
def omlx_2255_damaged_records_are_misses(rig: Rig) -> None:
    for damage in ("flip", "truncate"):
        drivers, prompt = written(rig)
        extent = next(entry.extent for entry in entries(drivers[0]) if entry.header.position == 512)
        descriptor = drivers[0].store._scratch._descriptor
        at = extent.end - 40
        if damage == "flip":
            byte = os.pread(descriptor, 1, at)
            os.pwrite(descriptor, bytes([byte[0] ^ 0x40]), at)
        else:
            os.pwrite(descriptor, bytes(40), at)
        stats = asked(drivers, "b", [*prompt, *rig.draw(5)], [])
        assert stats.cached_tokens == 256
        assert len(drivers[0].troubles) == 1


@TRAPS.add("omlx#2255; sglang#24758: swapped records", trap_faults.any_valid_record)
def omlx_2255_swapped_records_are_misses(rig: Rig) -> None:
    drivers, prompt = written(rig)
    store = drivers[0].store
    first, second = (entry.extent for entry in entries(drivers[0]) if entry.header.position in (256, 512))
    assert first.length == second.length
    held = [bytearray(first.length), bytearray(first.length)]
    for extent, buffer in zip((first, second), held, strict=True):
        store._scratch.read_into(extent.offset, memoryview(buffer))
    for extent, buffer in zip((second, first), held, strict=True):
        os.pwrite(store._scratch._descriptor, buffer, extent.offset)
    assert asked(drivers, "b", [*prompt, *rig.draw(5)], []).cached_tokens == 0


@TRAPS.add(
    "omlx#2255; sglang#24758: touched weights",
    lambda patch: patch.setattr(weights, "fingerprint", lambda config, files: "the same for all"),
)
def omlx_2255_touched_weights_are_others(rig: Rig) -> None:
    folder = tiny_models.save(rig.folder / "model", "qwen3", num_hidden_layers=1)
    file = folder / "model.safetensors"

    def name() -> str:
        return weights.fingerprint(folder / "config.json", [weights.read_header(file)])

    before = name()
    os.utime(file, ns=(1, 1))
    assert name() != before


@TRAPS.add("omlx#1795, #2064", trap_faults.budget_of_some_records)
def omlx_1795_the_file_is_never_longer_than_the_budget(rig: Rig) -> None:
    budget, lengths = 500_000, []

    class Watched(FaultyFiles):
        def pwritev(self, descriptor: int, buffers: Any, offset: int) -> int:
            written = super().pwritev(descriptor, buffers, offset)
            lengths.append(os.fstat(descriptor).st_size)
            return written

    drivers = rig.pair("gemma3", budget=budget, files=Watched())
    for turn in range(4):
        asked(drivers, f"c{turn}", rig.draw(500), [])
        drivers[0].drop_live(f"c{turn}")
        drivers[0].reuse.unpin(drivers[0].sequences[f"c{turn}"])
        assert drivers[0].store.drain(30)
    assert drivers[0].store.stats().evictions > 0
    assert max(lengths) <= budget


@TRAPS.add("omlx PR#2550", trap_faults.holes_not_seen)
def omlx_pr_2550_a_missing_middle_block(rig: Rig) -> None:
    """Shorter and right, and refilled by what is prefilled then."""
    drivers, prompt = written(rig, count=800)
    forget(drivers[0], next(entry for entry in entries(drivers[0]) if entry.header.position == 512))
    stats = asked(drivers, "b", [*prompt, *rig.draw(5)], [])
    assert (stats.cached_tokens, stats.shortfall_reason) == (256, "evicted")
    drivers[0].drop_live("b")
    assert asked(drivers, "c", [*prompt, *rig.draw(5)], []).cached_tokens == 800


@TRAPS.add("ds4#444, #447", trap_faults.oldest_first)
def ds4_444_the_suffix_goes_first_and_never_the_present_chain(rig: Rig) -> None:
    drivers, prompt = written(rig, count=1024, budget=2_600_000)
    drivers[0].reuse.unpin(drivers[0].sequences["a"])
    other = rig.draw(768)
    asked(drivers, "b", other, [])
    drivers[0].drop_live("b")
    kept = {entry.header.position for entry in entries(drivers[0]) if _is_of(entry, prompt)}
    assert 0 < len(kept) < 4
    assert kept == set(range(256, 256 * len(kept) + 1, 256)), "a suffix without its prefix"
    assert asked(drivers, "c", [*other, *rig.draw(5)], []).cached_tokens == 768


def _is_of(entry: Any, ids: list[int]) -> bool:
    start = (entry.header.position - 1) // 256 * 256
    return bool(entry.header.place.elements.tolist() == ids[start : entry.header.position])


@TRAPS.add("mlx-engine#341; vmlx#4; LMCache#2739", trap_faults.written_again, trap_faults.dropped_reasoning_written)
def mlx_engine_341_a_second_run_writes_nothing(rig: Rig) -> None:
    drivers = rig.pair("qwen3")
    cached, _ = drivers
    prompt, said = rig.draw(400), rig.draw(200)
    row = 3 * 2 * 2 * 32 * 4

    def run(name: str, drops: bool) -> int:
        asked(drivers, name, prompt, said, drops=drops, stable=395)
        cached.drop_live(name)
        entries(cached)
        return cached.store.stats().bytes_written

    once = run("dropped", True)
    assert once <= 1.1 * 400 * row, "the reasoning was written"
    assert run("dropped again", True) == once
    kept = run("kept", False)
    assert kept <= 1.1 * (600 + 143) * row, "more than what is kept, and two tails"
    assert run("kept again", False) == kept


@TRAPS.add("mlx-engine#335", trap_faults.failed_reads_forgotten)
def mlx_engine_335_a_drive_that_vanishes(rig: Rig) -> None:
    files = FaultyFiles()
    drivers, prompt = written(rig, files=files)
    files.read_error = files.write_error = io_error()
    assert asked(drivers, "b", [*prompt, *rig.draw(300)], rig.draw(2)).cached_tokens == 0
    assert drivers[0].store.drain(30)
    assert len(drivers[0].troubles) == 2  # reading and writing, each once


@pytest.mark.parametrize("name", TRAPS.rows)
def test_report(name: str, rig: Rig) -> None:
    TRAPS.rows[name].row(rig)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), TRAPS.planted)
def test_report_is_red_under_its_fault(name: str, number: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    TRAPS.turns_red(name, number, rig, monkeypatch)


@pytest.mark.slow
def test_mlx_lm_1256_under_load_for_minutes(rig: Rig) -> None:
    mlx_lm_1256_restores_on_another_thread_than_the_first(rig, seconds=120)
