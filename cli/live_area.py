"""The last lines of a terminal, which may still change; what stands above them is written once and left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from rich.control import strip_control_codes
from rich.text import Text

LEFT_FREE = 2
"""Rows of the screen that stay above the live lines: lines that leave the screen could no longer be changed."""

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # the terminal shows what is between them at once, if it can
_REFLOWS_NOT = ("linux", "rxvt", "vt", "screen")


class LiveArea:
    """Shows lines, some of them for good. Rich's Live keeps no count of the rows that a narrower window makes of them.

    write     puts text on the terminal at once
    size      columns and lines of the terminal now
    reflows   whether the terminal breaks its lines anew when it becomes narrower

    The cursor rests at the end of the last live line, or, if there is none, at the start of an empty row.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], os.terminal_size], reflows: bool) -> None:
        self._write = write
        self._size = size
        self._reflows = reflows
        self._shown: list[str] = []
        self._drawn_at = size()

    @property
    def is_empty(self) -> bool:
        """Whether nothing here can still change."""
        return not self._shown

    @property
    def resized(self) -> bool:
        """Whether the terminal is no longer as large as it was when the live lines were drawn."""
        return bool(self._shown) and self._size() != self._drawn_at

    def update(self, done: Sequence[str], live: Sequence[str]) -> None:
        """Write the lines `done` for good, and below them `live` in place of the live lines so far.

        Lines may hold colours. Live ones are no wider than the terminal.
        """
        size = self._size()
        narrower = bool(self._shown) and size.columns < self._drawn_at.columns
        tail = _tail(live, max(1, size.lines - LEFT_FREE))
        lines = [*done, *tail]
        same = 0 if narrower else _common(self._shown, lines)
        if same == len(lines) < len(self._shown):
            same = max(0, same - 1)  # the cursor has to come to rest behind the last line that stays
        out = self._up_to(same, size) + "\n".join(lines[same:])
        if same and same == len(self._shown) < len(lines):
            out = f"\n{out}"
        if lines and not tail:
            out += "\n"
        self._shown, self._drawn_at = tail, size
        if out:
            self._write(f"{_BEGIN}{out}{_END}" if same or "\x1b" in out else out)

    def _up_to(self, same: int, size: os.terminal_size) -> str:
        """Moves the cursor behind the first `same` live lines, and erases what is below."""
        if same == len(self._shown):
            return ""
        up = sum(self._rows(line, size.columns) for line in self._shown[same:]) - 1
        up = min(up, size.lines - 1)
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _rows(self, line: str, columns: int) -> int:
        if not self._reflows:
            return 1
        return max(1, -(-width_of(line) // columns))


def width_of(line: str) -> int:
    """How many cells of a terminal a line with colours takes."""
    return cell_len(strip_control_codes(Text.from_ansi(line).plain)) if "\x1b" in line else cell_len(line)


def reflows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal of this environment breaks its lines anew when it becomes narrower, as most do.

    Where it doesn't, counting on it would erase lines above the live ones.
    """
    term = environment.get("TERM", "")
    if environment.get("TMUX"):
        return True
    return not (environment.get("XTERM_VERSION") or term.startswith(_REFLOWS_NOT))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines at the start of both are the same."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _tail(lines: Sequence[str], most: int) -> list[str]:
    """The last lines, as many as the screen has room for, below a line that says how many there are above."""
    if len(lines) <= most:
        return list(lines)
    kept = max(0, most - 1)
    return [f"⋮ {len(lines) - kept:,} lines above", *lines[len(lines) - kept :]]
