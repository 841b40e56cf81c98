"""docs/modules.md, written from the modules' own words: `python tests/support/modules_page.py > docs/modules.md`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("cache", "engine", "engine/tools", "transcripts", "transcripts/formats", "cli")
HEAD = """# Every module

Each in the words it begins with; how they work together is in [architecture.md](architecture.md).
"""


def first_words(path: Path) -> str:
    """The first paragraph of the module's docstring, on one line."""
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split())


def rows(room: str) -> list[str]:
    """A row for each module of a room, by name."""
    paths = sorted((ROOT / room).glob("*.py"))
    cells = [(path.stem, first_words(path).replace("|", r"\|")) for path in paths if path.stem != "__init__"]
    return [f"| `{name}` | {words} |" for name, words in cells]


def page() -> str:
    """The whole page."""
    sections = [
        f"\n## {room}/\n\n{first_words(ROOT / room / '__init__.py')}\n\n| module | |\n|---|---|\n"
        + "".join(f"{row}\n" for row in rows(room))
        for room in ROOMS
    ]
    return HEAD + "".join(sections)


if __name__ == "__main__":
    print(page(), end="")
