"""Takes terminal escape sequences and control characters out of text from outside, also when a sequence is split."""

from __future__ import annotations

ESC = "\x1b"
_KEPT = "\n\t"
BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the order in which what stands around them is shown. Prose may need them, a line that asks may not."""

_STRING_STARTERS = {"]": True, "P": True, "X": True, "^": True, "_": True}
_C1_STRING_STARTERS = "\x90\x98\x9d\x9e\x9f"
_C1_CSI = "\x9b"
_C1_ST = "\x9c"


class Sanitizer:
    """A filter for one stream of text. `feed` returns what may be shown; a sequence begun stays held until it ends.

    A newline ends any sequence, so that an unfinished one can hide no more than the rest of its line.
    """

    def __init__(self) -> None:
        self._state = "text"

    def feed(self, text: str) -> str:
        """The showable part of `text`: no escape sequences, no control characters but newline and tab."""
        out: list[str] = []
        for char in text:
            if self._state == "text" or char == "\n":
                self._in_text(char, out)
            else:
                self._in_sequence(char)
        return "".join(out)

    def _in_text(self, char: str, out: list[str]) -> None:
        self._state = "text"
        if char == ESC:
            self._state = "escape"
        elif char == _C1_CSI:
            self._state = "csi"
        elif char in _C1_STRING_STARTERS:
            self._state = "string"
        elif "\ud800" <= char <= "\udfff":
            out.append("\ufffd")
        elif char in _KEPT or not _is_control(char):
            out.append(char)

    def _in_sequence(self, char: str) -> None:
        if self._state == "string":
            if char in ("\x07", _C1_ST):
                self._state = "text"
            elif char == ESC:
                self._state = "string escape"
        elif self._state == "string escape":
            self._state = "text" if char == "\\" else "string"
        elif char == ESC:
            self._state = "escape"
        elif self._state == "csi":
            if "@" <= char <= "~":
                self._state = "text"
        elif char == "[":
            self._state = "csi"
        elif char in _STRING_STARTERS:
            self._state = "string"
        elif not " " <= char <= "/":  # those are intermediate bytes; the next one ends the sequence
            self._state = "text"


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"


def sanitize_line(text: str) -> str:
    """A line of the program's own, with names from outside in it: an escape in place of what turns its direction."""
    return "".join(f"\\u{ord(char):04x}" if char in BIDI_CONTROLS else char for char in sanitize(text))


def sanitize(text: str) -> str:
    """One whole text, filtered."""
    return Sanitizer().feed(text)
