"""Draws what growth.py measured: two rows of curves, against a conversation's length and the number of those stored.

python benchmarks/curves.py growth.json docs/pictures/growth.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, Final

PANEL, HEIGHT, GAP = 250, 170, 62
LEFT, TOP = 60, 70
MIB: Final = 1 << 20
COLOURS: Final = ("#2563eb", "#d97706")
Curve = tuple[str, list[tuple[float, float]]]
PANELS: Final = (
    ("milliseconds", (("look-up", "look_up_ms", 1), ("restore", "restore_ms", 1))),
    ("MiB in memory", (("cache buffers", "held_bytes", MIB), ("read by a restore", "read_bytes", MIB))),
    ("MiB on disk", (("file", "file_bytes", MIB),)),
)


def picture(rows: Sequence[dict[str, Any]], layout: str) -> str:
    """The whole SVG."""
    by_length = [row for row in rows if row["conversations"] == 1]
    lengths = sorted({row["tokens"]: row for row in by_length}.values(), key=lambda row: row["tokens"])
    last = rows[-1]["tokens"]  # of the conversations that are counted
    numbers = [row for row in rows if row["tokens"] == last]
    parts = [text(LEFT - 40, 18, f"Random KV in the layers of {layout}; both axes are logarithmic", 13)]
    for line, (along, name, found) in enumerate(
        (("tokens", "tokens of one conversation", lengths), ("conversations", "conversations stored", numbers))
    ):
        for column, (unit, series) in enumerate(PANELS):
            curves = [(label, [(row[along], row[key] / scale) for row in found]) for label, key, scale in series]
            x, y = LEFT + column * (PANEL + GAP), TOP + line * (HEIGHT + 2 * GAP)
            parts += panel(x, y, unit, name, curves)
    width, height = LEFT + 3 * (PANEL + GAP), TOP + 2 * (HEIGHT + 2 * GAP) - GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def panel(x: float, y: float, unit: str, along: str, curves: Sequence[Curve]) -> list[str]:
    """One diagram with its axes, from its upper left corner."""
    points = [point for _, curve in curves for point in curve]
    right, up = powers([a for a, _ in points]), powers([b for _, b in points])

    def across(value: float) -> float:
        return x + PANEL * (log10(value) - right[0]) / (right[1] - right[0])

    def above(value: float) -> float:
        return y + HEIGHT * (1 - (log10(value) - up[0]) / (up[1] - up[0]))

    parts = [text(x, y - 8, unit, 12), text(x + PANEL / 2, y + HEIGHT + 34, along, 12, "middle")]
    for power in range(right[0], right[1] + 1):
        at = across(10.0**power)
        parts += [line(at, y, at, y + HEIGHT), text(at, y + HEIGHT + 16, short(power), 11, "middle")]
    for power in range(up[0], up[1] + 1):
        at = above(10.0**power)
        parts += [line(x, at, x + PANEL, at), text(x - 6, at + 4, short(power), 11, "end")]
    for number, (label, curve) in enumerate(curves):
        colour = COLOURS[number]
        path = " ".join(f"{across(a):.1f},{above(b):.1f}" for a, b in curve)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(a):.1f}" cy="{above(b):.1f}" r="3" fill="{colour}"/>' for a, b in curve]
        parts.append(text(x + PANEL, y - 8 - 14 * (len(curves) - 1 - number), label, 12, "end", colour))
    return parts


def powers(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that an axis for these values begins and ends with."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#e5e7eb"/>'


def text(x: float, y: float, words: str, size: int, anchor: str = "start", colour: str = "#374151") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def short(power: int) -> str:
    """A power of ten in words that fit under an axis."""
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def main() -> None:
    """Read the JSON of growth.py, write the picture."""
    source, target = map(Path, sys.argv[1:3])
    found = json.loads(source.read_text(encoding="utf-8"))
    target.write_text(picture(found["rows"], found["layout"]), encoding="utf-8")


if __name__ == "__main__":
    main()
