"""A model's reasoning on a terminal: its last lines while it thinks, one line once it is done."""

from __future__ import annotations

from .rich_lines import RichLines

LINES_SHOWN = 5


class ReasoningView:
    """The reasoning of one part of an answer. Times are seconds of any clock."""

    def __init__(self, lines: RichLines, now: float) -> None:
        self._lines = lines
        self._began = now
        self.text = ""
        self.tokens = 0

    def feed(self, text: str, tokens: int) -> None:
        """More reasoning, already sanitised; `tokens` so far, 0 where nobody counted."""
        self.text += text
        self.tokens = max(self.tokens, tokens)

    def live(self, now: float, width: int, shown: bool) -> list[str]:
        """How long it thinks, and, if they are to be shown, the last lines of what."""
        lines = self._lines.dim(f"thinking … {self._so_far(now)}", width)
        return lines + (self._last_lines(width) if shown else [])

    def folded(self, now: float) -> str:
        """The line that stays: `thought 212 tokens, 3.1 s`."""
        return f"thought {self._so_far(now)}"

    def _so_far(self, now: float) -> str:
        return f"{f'{self.tokens:,} tokens, ' if self.tokens else ''}{now - self._began:.1f} s"

    def _last_lines(self, width: int) -> list[str]:
        """Whole lines of the text are broken anew each time, so that no word jumps while others come."""
        rows: list[str] = []
        for line in reversed(self.text.expandtabs(4).rstrip().split("\n")):
            rows = (self._lines.dim(line, width) or [""]) + rows
            if len(rows) >= LINES_SHOWN:
                break
        return rows[-LINES_SHOWN:]
