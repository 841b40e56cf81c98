"""The whole parity matrix, and its table in docs/architecture.md: `python tests/support/parity_table.py [NAME …]`.

Run it with MLXCHAT_BLAS=off and the package's parent and tests/ on PYTHONPATH. It rewrites the rows it has run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
from mlxchat.engine import backend
from mlxchat.engine.fresh_caches import FreshCaches
from mlxchat.engine.options import KVQuantization
from mlxchat.errors import UsageError
from support import parity
from support.parity import LARGE, SMALL, Bench, Outcome, Sizes, Writer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- parity table -->", "<!-- end of the parity table -->"
HEAD = (
    "| model | its layers | prefill | decode | 8 bits | 4 bits | bf16 | no cut at P | decode = prefill |",
    "|---|---|---|---|---|---|---|---|---|",
)
SUFFIXES = (1, 2, 255, 256, 257, 700)
SHORT_SUFFIXES = (1, 2, 257)
NO_BF16 = frozenset({"gpt_oss", "qwen3_next", "llama4", "deepseek_v32"})
"""Mixtures of experts: the CPU backend gathers in float32 only."""


@dataclass
class Cells:
    """The outcomes of one column."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def run(
        self,
        model: object,
        writer: Writer,
        sizes: Sizes,
        suffixes: tuple[int, ...],
        quantization: KVQuantization | None = None,
        *,
        compare_uncut: bool = False,
    ) -> str:
        """Restore at every point with every suffix; returns whether decode equals prefill, in a word."""
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(model, Path(folder), writer, sizes, quantization)
            try:
                for point in bench.points:
                    for suffix in suffixes:
                        name = f"{writer} {point} {suffix} {quantization or ''}"
                        self.outcomes[name] = bench.restore(point, suffix, compare_uncut=compare_uncut)
                return _word(writer == "decode" and bench.decode_is_prefill())
            finally:
                bench.close()

    @property
    def wrong(self) -> list[str]:
        """What isn't as promised."""
        return [f"{name}: {outcome}" for name, outcome in self.outcomes.items() if not outcome.right]

    def __str__(self) -> str:
        right = len(self.outcomes) - len(self.wrong)
        return f"{right}/{len(self.outcomes)}"


def _word(equal: bool) -> str:
    return "equal" if equal else "differs"


def kinds_of(name: str) -> str:
    """The groups of a model's layers, by their names in records."""
    layout = parity.layout(parity.architecture(name))
    return ", ".join([*(group.name for group in layout.rows), *(["state"] if layout.states else [])])


def row(name: str) -> tuple[str, list[str]]:
    """One line of the table, and the cells that went wrong."""
    model = parity.architecture(name)
    prefill, decode = Cells(), Cells()
    prefill.run(model, "prefill", LARGE["prefill"], SUFFIXES, compare_uncut=True)
    same = decode.run(model, "decode", LARGE["decode"], SUFFIXES)
    uncut = _word(all(outcome.uncut for outcome in prefill.outcomes.values()))
    eight, four, half = (Cells() for _ in range(3))
    shown = [_quantized(name, 8, eight), _quantized(name, 4, four), _bf16(name, half)]
    cells = [name, kinds_of(name), str(prefill), str(decode), *shown, uncut, same]
    wrong = [line for part in (prefill, decode, eight, four, half) for line in part.wrong]
    return f"| {' | '.join(cells)} |", wrong


def _quantized(name: str, bits: int, cells: Cells) -> str:
    model, quantization = parity.architecture(name), KVQuantization(bits, 32)
    try:
        if FreshCaches(model, quantization).check_quantization(name):
            return "none to quantize"
    except UsageError:
        return "refused"
    for writer in ("prefill", "decode"):
        cells.run(model, writer, SMALL[writer], SHORT_SUFFIXES, quantization)
    return str(cells)


def _bf16(name: str, cells: Cells) -> str:
    if name in NO_BF16:
        return "not on the CPU"
    model = parity.architecture.__wrapped__(name)  # one of its own, not the shared one
    model.set_dtype(mx.bfloat16)
    for writer in ("prefill", "decode"):
        cells.run(model, writer, SMALL[writer], SHORT_SUFFIXES)
    return str(cells)


def rows_on_the_page() -> dict[str, str]:
    """The table's lines in docs/architecture.md, by model."""
    return {line.split(" | ")[0].strip("| "): line for line in _table(PAGE.read_text(encoding="utf-8"))}


def _table(page: str) -> Iterator[str]:
    inside = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    return iter(inside[len(HEAD) :])


def write(rows: dict[str, str]) -> None:
    """Put the lines into the page, those of other models as they were."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    known = {**rows_on_the_page(), **rows}
    lines = [*HEAD, *(known[name] for name in parity.ARCHITECTURES if name in known)]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(names: list[str]) -> None:
    """Run the rows and write them, each as soon as it is there."""
    backend.prepare()
    for name in names or parity.ARCHITECTURES:
        line, wrong = row(name)
        write({name: line})
        print(line, *wrong, sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
