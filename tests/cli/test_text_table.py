"""Columns stand below each other, however wide their characters are."""

from __future__ import annotations

import pytest
from mlxchat.cli.line_breaking import cells
from mlxchat.cli.text_table import aligned

pytestmark = pytest.mark.plain

NAMES = ["plain", "日本語のモデル", "🙂", "👨‍👩‍👧 family", "e\u0301te\u0301", ""]


def test_columns_begin_at_the_same_cell() -> None:
    rows = [(name, "|", f"words of {name}") for name in NAMES]
    starts = {cells(line[: line.index("|")]) for line in aligned(rows)}
    assert starts == {max(map(cells, NAMES)) + 2}


def test_the_last_column_ends_with_its_text() -> None:
    assert list(aligned([("a", "long words"), ("bcd", "")])) == ["a    long words", "bcd"]


def test_one_column_and_no_rows() -> None:
    assert list(aligned([("a",), ("bc",)])) == ["a", "bc"]
    assert list(aligned([])) == []
