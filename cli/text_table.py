"""Rows as lines whose columns stand below each other, by the cells that their characters take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .line_breaking import cells, padded

_GAP = "  "


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line per row, all rows of as many columns; the last column ends where its text does."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(cells, column)) for column in columns[:-1]]
    for *firsts, last in rows:
        yield _GAP.join([*map(padded, firsts, widths), last]).rstrip()
