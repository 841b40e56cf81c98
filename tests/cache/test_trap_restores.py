"""Faults that users of other engines reported, one test each, named after its report: how far back, and what returns.

The others are in test_trap_records.py and in the table of docs/architecture.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlxchat.engine.options import KVQuantization
from support import faults, trap_faults
from support.trap_rig import Rig, Traps, asked, entries, forget

pytestmark = pytest.mark.exact

TRAPS = Traps()


@TRAPS.add(
    "mlx-lm#980, #1162; lmstudio-bug-tracker#1697, #1977", trap_faults.all_or_nothing_trims, faults.window_row_missing
)
def mlx_lm_980_windows_and_states_are_not_prefilled_again(rig: Rig) -> None:
    for name, said in (("gemma3", 300), ("qwen3_5", 3)):
        drivers = rig.pair(name)
        prompt = rig.draw(400)
        asked(drivers, "a", prompt, rig.draw(said), {395: "stable_user"}, drops=True, stable=395)
        stats = asked(drivers, "a", [*prompt[:395], *rig.draw(60)], rig.draw(2), {395: "stable_user"})
        assert (stats.cached_tokens, stats.prefill_tokens) == (395, 60)


@TRAPS.add("mlx-lm#1042; Qwen3#1826; llama.cpp#20225, #21831, #22746", trap_faults.no_states_at_marks)
def mlx_lm_1042_reasoning_is_dropped_kept_and_dropped(rig: Rig) -> None:
    drivers = rig.pair("qwen3_5")
    history = rig.draw(300)
    marks = {295: "stable_user"}
    asked(drivers, "a", history, rig.draw(20), marks, drops=True, stable=295)
    # Reasoning of the first turn is gone; the second one calls a tool, and keeps its own until the loop ends.
    second, thought = [*history[:295], *rig.draw(40)], rig.draw(20)
    marks[330] = "stable_user"
    assert asked(drivers, "a", second, thought, marks, stable=330).cached_tokens == 295
    looped = [*second, *thought, *rig.draw(30)]
    stats = drivers[0].turn("a", looped, rig.draw(5), marks, drops=True, stable=330)[0]
    assert (stats.cached_tokens, stats.rewind_tokens) == (len(second) + len(thought), 0)
    third = [*second[:330], *rig.draw(50)]
    assert asked(drivers, "a", third, rig.draw(2), marks).cached_tokens == 330


@TRAPS.add("mlx-lm#1776", trap_faults.unchecked_trims)
def mlx_lm_1776_a_rewind_past_a_full_window_is_correct(rig: Rig) -> None:
    drivers = rig.pair("gemma3")
    prompt = rig.draw(700)
    asked(drivers, "a", prompt, rig.draw(3))
    stats = asked(drivers, "a", [*prompt[:300], *rig.draw(20)], rig.draw(2))
    assert stats.cached_tokens == 300 > 128


@TRAPS.add("mlx-lm#1494, #1502, #1503", faults.off_by_one)
def mlx_lm_1494_every_layer_stands_at_the_position(rig: Rig) -> None:
    for name in ("qwen3", "gemma3", "llama4", "baichuan_m1", "deepseek_v32"):
        cached, _ = rig.pair(name)
        prompt = rig.draw(400)
        cached.turn("a", prompt, rig.draw(2), {390: "stable_user"})
        cached.drop_live("a")
        seen: list[int] = []
        begin = cached.reuse.begin

        def look(*given: Any, begin: Any = begin, seen: list[int] = seen) -> Any:
            live = begin(*given)
            seen.extend(int(leaf.offset) for leaf in live.leaves if hasattr(leaf, "offset"))
            return live

        cached.reuse.begin = look
        cached.turn("b", [*prompt[:390], *rig.draw(9)], [])
        assert len(seen) >= 2
        assert set(seen) == {390}


@TRAPS.add("mlx-lm#1395, #1483; vllm-mlx#575", trap_faults.shared_buffers)
def mlx_lm_1395_a_checkpoint_is_restored_twice_and_stays(rig: Rig) -> None:
    cached, plain = rig.pair("qwen3")
    prompt = rig.draw(500)
    cached.turn("a", prompt, [])
    cached.drop_live("a")
    before = stored(cached)
    one, two = rig.draw(30), rig.draw(30)
    cached.turn("b", [*prompt, 7], one)
    cached.turn("c", [*prompt, 8], two)  # from the same records, while b is in memory
    _, logits = cached.turn("b", [*prompt, 7, *one, 9], [])
    _, wanted = plain.turn("b", [*prompt, 7, *one, 9], [], extra_cut=531)
    assert np.array_equal(logits, wanted)
    assert stored(cached) == before


def stored(driver: Any) -> dict[int, bytes]:
    """Every record's bytes as they are on disk, of those below the prompt's end."""
    found: dict[int, bytes] = {}
    for entry in [entry for entry in entries(driver) if entry.header.position <= 500]:
        held = bytearray(entry.extent.length)
        driver.store._scratch.read_into(entry.extent.offset, memoryview(held))
        found[entry.header.position] = bytes(held)
    return found


@TRAPS.add("mlx-lm#1109, #1528; vllm-mlx PR#311", faults.off_by_one, faults.tail_short_by_one)
def mlx_lm_1109_the_last_token_is_fed_once(rig: Rig) -> None:
    """P == len - 1 (the same prompt again) and P == len of what was fed (it goes on)."""
    drivers = rig.pair("qwen3")
    prompt = rig.draw(300)
    asked(drivers, "a", prompt, [])
    drivers[0].drop_live("a")
    assert asked(drivers, "b", prompt, rig.draw(2)).prefill_tokens == 1
    assert drivers[0].shapes[0] == (299, 1)
    stats = asked(drivers, "c", [*prompt, 9], [])
    assert (stats.cached_tokens, drivers[0].shapes) == (300, [(300, 1)])


@TRAPS.add("mlx-lm#1384, #1699; vllm-mlx#380", lambda patch: patch.setattr(faults, "poison", poison_one_more))
def mlx_lm_1384_rows_past_the_end_change_nothing(rig: Rig) -> None:
    for name in ("gemma3n", "gemma4", "mlx-vlm gemma3n"):
        drivers = rig.pair(name)
        prompt = rig.draw(300)
        drivers[0].turn("a", prompt, [])
        drivers[0].drop_live("a")
        begin = drivers[0].reuse.begin

        def poisoned(*given: Any, begin: Any = begin) -> Any:
            live = begin(*given)
            assert faults.poison(live) > 0
            return live

        drivers[0].reuse.begin = poisoned
        assert asked(drivers, "b", [*prompt, *rig.draw(20)], rig.draw(3)).cached_tokens == 300


_poison = faults.poison


def poison_one_more(live: Any) -> int:
    return _poison(live, upto=1)


@TRAPS.add("mlx-vlm#1715", trap_faults.captured_in_ring_order, faults.ring_order)
def mlx_vlm_1715_a_checkpoint_of_decode_past_the_window(rig: Rig) -> None:
    drivers = rig.pair("gemma3")
    prompt, said = rig.draw(200), rig.draw(330)
    drivers[0].turn("a", prompt, said)
    drivers[0].drop_live("a")
    fed = [*prompt, *said]
    for position in (400, 512):
        assert asked(drivers, f"to {position}", [*fed[:position], *rig.draw(9)], []).cached_tokens == position


@TRAPS.add("mlx-vlm#1310", faults.row_short)
def mlx_vlm_1310_quantized_rows_remember_the_prompt(rig: Rig) -> None:
    drivers = rig.pair("smollm3", quantization=KVQuantization(4, 32))
    prompt = rig.draw(300)
    asked(drivers, "a", prompt, [])
    drivers[0].drop_live("a")
    assert asked(drivers, "b", [*prompt, *rig.draw(9)], rig.draw(2)).cached_tokens == 300


@TRAPS.add("omlx#825; LMCache PR#2863", trap_faults.states_restored_alone)
def omlx_825_all_layers_or_none(rig: Rig) -> None:
    drivers = rig.pair("qwen3_5")
    prompt = rig.draw(400)
    asked(drivers, "a", prompt, [], {100: "user_start", 390: "stable_user"})
    drivers[0].drop_live("a")
    forget(drivers[0], next(entry for entry in entries(drivers[0], "state") if entry.header.position == 390))
    again = [*prompt[:390], *rig.draw(20)]
    assert asked(drivers, "b", again, rig.draw(2), {100: "user_start"}).cached_tokens == 100


@TRAPS.add("omlx#1427, #3182, #3314", trap_faults.large_blocks, trap_faults.no_tails)
def omlx_1427_short_tool_turns_hit(rig: Rig) -> None:
    drivers = rig.pair("gemma3")
    prompt = rig.draw(300)
    for turn in range(3):
        said = rig.draw(2)
        stats = asked(drivers, "a", prompt, said)
        assert stats.prefill_tokens == (300 if turn == 0 else 298)
        drivers[0].drop_live("a")
        prompt = [*prompt, *said, *rig.draw(298)]


@TRAPS.add("ollama#18267", trap_faults.large_blocks)
def ollama_18267_any_position_can_be_gone_back_to(rig: Rig) -> None:
    drivers = rig.pair("gemma3")
    prompt = rig.draw(600)
    asked(drivers, "a", prompt, [])
    drivers[0].drop_live("a")
    for position in (599, 300):  # no mark is at any of them
        stats = asked(drivers, f"at {position}", [*prompt[:position], *rig.draw(40)], [])
        assert stats.prefill_tokens == 40


@TRAPS.add("mlx-engine: window 128 of GPT-OSS", trap_faults.captured_in_ring_order)
def mlx_engine_windows_smaller_than_a_block_are_saved_in_decode(rig: Rig) -> None:
    for width in (128,):  # 320, 512 and 1024: test_windows.py
        drivers = rig.pair(f"gemma3:{width}")
        prompt, said = rig.draw(250), rig.draw(270)
        drivers[0].turn("a", prompt, said)
        drivers[0].drop_live("a")
        fed = [*prompt, *said]
        assert asked(drivers, "b", [*fed[:500], *rig.draw(9)], []).cached_tokens == 500


@TRAPS.add("vllm#40696, #42317", trap_faults.no_reasons)
def vllm_40696_the_stats_say_why_not_more(rig: Rig) -> None:
    drivers = rig.pair("qwen3_5")
    prompt = rig.draw(600)
    asked(drivers, "a", prompt, [], {100: "user_start"})
    drivers[0].drop_live("a")
    assert asked(drivers, "b", [*prompt[:300], *rig.draw(5)], []).shortfall_reason == "no_anchor"
    whole = rig.pair("qwen3")
    asked(whole, "a", prompt, [])
    whole[0].drop_live("a")
    forget(whole[0], next(entry for entry in entries(whole[0]) if entry.header.position == 256))
    stats = asked(whole, "b", [*prompt, 5], [])
    assert (stats.cached_tokens, stats.shortfall_reason) == (0, "evicted")


@TRAPS.add("codex#31902", trap_faults.branches_not_kept)
def codex_31902_the_old_branch_stays_reachable(rig: Rig) -> None:
    drivers = rig.pair("qwen3_5")
    prompt, said = rig.draw(300), rig.draw(20)
    asked(drivers, "a", prompt, said, {200: "user_start"})
    edited = [*prompt[:200], *rig.draw(60)]
    assert asked(drivers, "a", edited, rig.draw(2), {200: "user_start"}).cached_tokens == 200
    back = drivers[0].turn("a", [*prompt, *said, *rig.draw(5)], [])[0]
    assert back.cached_tokens == 320


@pytest.mark.parametrize("name", TRAPS.rows)
def test_report(name: str, rig: Rig) -> None:
    TRAPS.rows[name].row(rig)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), TRAPS.planted)
def test_report_is_red_under_its_fault(name: str, number: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    TRAPS.turns_red(name, number, rig, monkeypatch)
