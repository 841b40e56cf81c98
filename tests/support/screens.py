"""Screens kept as files: what a terminal shows is compared with what it showed when somebody last looked at it.

`pytest --write-screens` writes them anew; the difference is then to be looked at before it is committed.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "cli" / "screens"
_VARYING = ((re.compile(r"\b\d+\.\d s\b"), "N s"), (re.compile(r"/\S*/home/sessions"), "HOME/sessions"))


def same_screen(name: str, text: str, write: bool) -> None:
    """Compare `text`, its times and paths left out, with the screen of that name, or write it."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    file = FOLDER / f"{name}.txt"
    if write:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == file.read_text(encoding="utf-8"), "if that is right: pytest --write-screens"
