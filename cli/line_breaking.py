"""Lines no wider than the terminal: broken between words, or cut. Widths are cells, of which 日 and 🙂 take two."""

from __future__ import annotations

import re

_PIECES = re.compile(r" +|[^ ]+")


def cells(text: str) -> int:
    """How many cells of a terminal `text` takes, which is one line without colours."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # only when needed: rich takes longer to import than printing help does

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """At most `room` cells, the last one an ellipsis where some are left out."""
    if cells(text) <= room:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, max(0, room - 1)).rstrip()}…"


def padded(text: str, columns: int) -> str:
    """`text` with spaces behind it up to `columns` cells; what is wider stays as it is."""
    return text + " " * (columns - cells(text))


def broken(text: str, columns: int) -> str:
    """`text` with its lines broken between words where they are wider; a word that is wider itself stays whole."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if cells(line.expandtabs()) <= columns else wrapped(line, columns)
    return "\n".join(lines)


def wrapped(text: str, columns: int, first: str = "", rest: str = "") -> list[str]:
    """One line as at least one, the first begun with `first` and the others with `rest`.

    Only spaces are places to break at. Those at the beginning and between words of a line stay as they are.
    """
    lines: list[str] = []
    line, width, gap, bare = first, cells(first), "", True
    for piece in _PIECES.findall(text.expandtabs()):
        if piece[0] == " ":
            gap = piece
            continue
        room = columns - width - len(gap)
        if cells(piece) > room and not bare:
            lines.append(line)
            line, width, gap = rest, cells(rest), ""
        line, width, gap, bare = f"{line}{gap}{piece}", width + len(gap) + cells(piece), "", False
    return [*lines, line]
