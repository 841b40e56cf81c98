"""What a server lists, page by page, as far as it may go into every prompt."""

from __future__ import annotations

import json
from itertools import islice

from .tool import Tool

MOST_PAGES, MOST_TOOLS, MOST_BYTES = 100, 128, 256 * 1024
LIMITS = f"at most {MOST_TOOLS} tools and {MOST_BYTES // 1024} KiB of definitions are used"
_NAMED, _LONGEST_NAME = 3, 40  # of what is left out


class Listing:
    """One server's tools in its own order. One that doesn't fit is left out, and smaller ones behind it may fit yet."""

    def __init__(self) -> None:
        self._kept: dict[str, Tool] = {}
        self._bytes = self._pages = 0
        self._left_out: dict[str, None] = {}
        self._goes_on = False

    @property
    def tools(self) -> list[Tool]:
        """Those that are used; of several of one name the first."""
        return list(self._kept.values())

    @property
    def left_out(self) -> str:
        """What is not, in a few words for people; empty if everything is used."""
        count, names = len(self._left_out), [_short(name) for name in islice(self._left_out, _NAMED)]
        names += ["…"] * (count > _NAMED)
        parts = [f"{count:,} tool{'s' * (count != 1)} ({', '.join(names)})"] if count else []
        parts += ["further pages"] * self._goes_on
        return " and ".join(parts)

    def wants_more(self, page: list[Tool], *, goes_on: bool) -> bool:
        """Take a page in; whether to ask for the next one. `goes_on`: there is one."""
        for tool in page:
            self._add(tool)
        self._pages += 1
        is_full = self._pages >= MOST_PAGES or len(self._kept) >= MOST_TOOLS
        self._goes_on = goes_on and is_full
        return goes_on and not is_full

    def _add(self, tool: Tool) -> None:
        if tool.name in self._kept:
            return
        size = len(json.dumps(tool.function, ensure_ascii=False).encode(errors="replace"))
        if len(self._kept) < MOST_TOOLS and self._bytes + size <= MOST_BYTES:
            self._kept[tool.name] = tool
            self._bytes += size
            return
        self._left_out[tool.name] = None


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
