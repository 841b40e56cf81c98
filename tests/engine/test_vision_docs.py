"""The table of families in docs/images.md is what the models say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.vision_table import lines

pytestmark = [pytest.mark.exact, pytest.mark.slow]


def test_the_table_of_families(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "images.md").read_text(encoding="utf-8")
    assert "\n".join(lines(tmp_path)) in text, "python tests/support/vision_table.py writes it"
