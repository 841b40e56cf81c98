"""Long pastes stand at the prompt as a placeholder; what is sent, edited and remembered is the text."""

from __future__ import annotations

import re

LONGEST_LINES, LONGEST_CHARACTERS = 10, 1000
"""Anything shorter is shown as it is."""


class Pastes:
    """The long pastes of one run, by their placeholders."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """What to show for a paste: itself, or a placeholder such as `[pasted 120 lines]`."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= LONGEST_LINES and len(text) <= LONGEST_CHARACTERS:
            return text
        what = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        number = 1
        while self._texts.setdefault(name := _name(what, number), text) != text:
            number += 1
        return name

    def expand(self, text: str) -> str:
        """`text` with every placeholder replaced by what was pasted."""
        if not self._texts:
            return text
        known = "|".join(map(re.escape, self._texts))
        return re.sub(known, lambda found: self._texts[found[0]], text)

    def length_before(self, text: str) -> int:
        """How long the placeholder is that `text` ends with; 0 if it ends with none."""
        return max((len(name) for name in self._texts if text.endswith(name)), default=0)


def _name(what: str, number: int) -> str:
    return f"[pasted {what}]" if number == 1 else f"[pasted {what} #{number}]"
