"""The parity matrix: every architecture whose caches differ, each cell bit for bit, each shown red when damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.options import KVQuantization
from mlxchat.errors import UsageError
from support import faults, parity, parity_table
from support.parity import ARCHITECTURES, SMALL, Bench, architecture

pytestmark = pytest.mark.exact

NONE_TO_QUANTIZE = {"recurrent_gemma", "mamba2"}
TAKES_NO_QUANTIZED_ROWS = {"gemma4", "gpt_oss", "deepseek_v32"}
QUANTIZED_QUICKLY = [("lfm2", 8), ("smollm3", 4), ("baichuan_m1", 8), ("falcon_h1", 4), ("mlx-vlm gemma3", 8)]


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = []

    def make(name: str, writer: parity.Writer, quantization: KVQuantization | None = None) -> Bench:
        made.append(Bench(architecture(name), tmp_path, writer, SMALL[writer], quantization))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_prefill_wrote(name: str, bench: Any) -> None:
    made = bench(name, "prefill")
    for point, suffix in (("anchor", 2), ("edge", 1)):
        outcome = made.restore(point, suffix)
        assert outcome.right, (point, suffix, outcome)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_decode_wrote(name: str, bench: Any) -> None:
    made = bench(name, "decode")
    outcome = made.restore(made.points[0], 2)
    assert outcome.right, outcome


@pytest.mark.parametrize(("name", "bits"), QUANTIZED_QUICKLY)
def test_quantized_rows(name: str, bits: int, bench: Any) -> None:
    made = bench(name, "decode", KVQuantization(bits, 32))
    outcome = made.restore("anchor", 2)
    assert outcome.right, outcome


# -- planted faults ---------------------------------------------------------------------------------------------


def planted(name: str) -> list[Callable[[Any], None]]:
    """A fault for each kind of layer that the architecture has."""
    layout = parity.layout(architecture(name))
    found = [faults.row_short] if layout.rows else []
    if any(group.name.startswith("local") for group in layout.rows):
        # recurrent_gemma's attention is so peaked that its oldest row adds nothing in float32.
        found.append(faults.ring_order if name == "recurrent_gemma" else faults.window_row_missing)
    found += [faults.state_zeroed] if layout.states else []
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_kind_of_layer_turns_the_matrix_red(name: str, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(name, "prefill")
    for plant in planted(name):
        with monkeypatch.context() as patch:
            plant(patch)
            outcome = made.restore("anchor", 1)
        assert outcome.position == outcome.wanted
        assert not outcome.equal, plant.__name__


@pytest.mark.parametrize("name", ["lfm2", "smollm3"])
def test_a_short_row_turns_quantized_cells_red(name: str, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(name, "prefill", KVQuantization(4, 32))
    faults.row_short(monkeypatch)
    assert not made.restore("anchor", 1).equal


# -- which models --kv-bits is for ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_kv_bits_is_tried_before_the_first_request(name: str) -> None:
    caches = FreshCaches(architecture(name), KVQuantization(8, 32))
    if name in TAKES_NO_QUANTIZED_ROWS:
        with pytest.raises(UsageError, match="can't run with --kv-bits 8 and groups of 32"):
            caches.check_quantization(name)
    elif name in NONE_TO_QUANTIZE:
        assert "changes nothing" in caches.check_quantization(name)
    else:
        assert caches.check_quantization(name) == ""
        with pytest.raises(UsageError, match="divisible by the quantization group size 128"):
            FreshCaches(architecture(name), KVQuantization(8, 128)).check_quantization(name)


# -- the whole matrix, and its table ----------------------------------------------------------------------------


def test_the_table_has_every_architecture_with_its_layers() -> None:
    lines = parity_table.rows_on_the_page()
    assert list(lines) == list(ARCHITECTURES)
    for name, line in lines.items():
        assert line.split(" | ")[1] == parity_table.kinds_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_whole_matrix_is_what_the_table_says(name: str) -> None:
    line, wrong = parity_table.row(name)
    assert wrong == []
    print(line)
    assert line == parity_table.rows_on_the_page()[name], "run: python tests/support/parity_table.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_faults_turn_large_cells_red(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bench(architecture(name), tmp_path, "prefill", parity.LARGE["prefill"])
    try:
        for plant in planted(name):
            for point in made.points:
                with monkeypatch.context() as patch:
                    plant(patch)
                    assert not made.restore(point, 1).equal, (plant.__name__, point)
    finally:
        made.close()
