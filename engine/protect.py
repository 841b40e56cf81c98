"""Keeps what people, tools and files wrote from being read as control tokens.

Before the template runs, every control string inside content becomes one private-use character; afterwards that
character stands for the string again, known to be content. Private-use characters that content itself holds are
carried through the same way, so none can be forged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from .encoding import Scanner
from .image_spans import PreparedImage

_FIRST = 0xF0000
_PICTURES = 0xFF000
_SENTINELS = 0x100000
_LAST = 0x10FFFD
_RESERVED = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_SENTINEL = re.compile(f"[{chr(_SENTINELS)}-{chr(_LAST)}]")
_PICTURE = re.compile(f"[{chr(_PICTURES)}-{chr(_SENTINELS - 1)}]")
MOST_PICTURES = _SENTINELS - _PICTURES
MAX_SENTINELS = _LAST - _SENTINELS


class Protector:
    """The stand-ins of one prompt. The same string gets the same stand-in in every render of it."""

    def __init__(self, scanner: Scanner, hides_control: Callable[[str], bool]) -> None:
        self._scanner = scanner
        self._hides_control = hides_control
        self._stand_ins: dict[str, str] = {}
        self._strings: dict[str, str] = {}
        self._control: set[str] = set()
        self._pictures: list[PreparedImage] = []
        self._marker = ""

    def protect(self, value: Any) -> Any:
        """The same JSON value, keys too, with control strings replaced by their stand-ins."""
        if isinstance(value, str):
            return self._protect_text(value)
        if isinstance(value, dict):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.protect(item) for item in value]
        return value

    def restore(self, text: str) -> str:
        """The text with every stand-in turned back."""
        if not self._strings:
            return text
        return _RESERVED.sub(lambda hit: self._strings.get(hit.group(), hit.group()), text)

    def show_pictures(self, pictures: list[PreparedImage], marker: str) -> None:
        """The prompt's pictures in order, and the text by which its template marks one."""
        self._pictures, self._marker = pictures, marker
        self._strings.update({chr(_PICTURES + index): marker for index in range(len(pictures))})

    def with_pictures(self, text: str) -> str:
        """The template's text with each marker turned into its picture's stand-in, between what belongs around it.

        Must hold: as many markers as pictures, or fewer. Content can't hold a marker: it has been protected.
        """
        if not self._pictures:
            return text
        parts = text.split(self._marker)
        out = [parts[0]]
        for index, part in enumerate(parts[1:]):
            picture = self._pictures[index]
            out += [picture.lead, chr(_PICTURES + index), picture.tail, part]
        return "".join(out)

    def picture_hits(self, text: str, at: int = 0) -> Iterator[tuple[int, PreparedImage]]:
        """(offset, picture) of every picture's stand-in, one character each, from `at` on."""
        if self._pictures:
            for hit in _PICTURE.finditer(text, at):
                yield hit.start(), self._pictures[ord(hit.group()) - _PICTURES]

    def control_hits(self, text: str, at: int = 0) -> Iterator[tuple[int, int]]:
        """(start, end) of every stand-in for a control string, from `at` on."""
        if self._control:
            for hit in _RESERVED.finditer(text, at):
                if hit.group() in self._control:
                    yield hit.span()

    def _protect_text(self, text: str) -> str:
        if not text.isascii():
            text = _RESERVED.sub(lambda hit: self._stand_in(hit.group(), control=False), text)
        parts, at = [], 0
        for start, end in self._scanner.find(text):
            parts += [text[at:start], self._stand_in(text[start:end], control=True)]
            at = end
        if parts:
            text = "".join((*parts, text[at:]))
        # a control token in disguise (other letters that normalize to it): nothing of it can be told apart
        return self._stand_in(self.restore(text), control=True) if self._hides_control(text) else text

    def _stand_in(self, string: str, *, control: bool) -> str:
        known = self._stand_ins.get(string)
        if known is None:
            known = chr(_FIRST + len(self._stand_ins))
            self._stand_ins[string] = known
            self._strings[known] = string
            if control:
                self._control.add(known)
        return known


def sentinel(index: int) -> str:
    """A character that marks where message `index` begins; no content can hold it."""
    return chr(_SENTINELS + index)


def split_at_sentinels(text: str) -> list[tuple[str, int | None]]:
    """The stretches between sentinels, each with the index of the sentinel that ends it (None: the last)."""
    out: list[tuple[str, int | None]] = []
    at = 0
    for hit in _SENTINEL.finditer(text):
        out.append((text[at : hit.start()], ord(hit.group()) - _SENTINELS))
        at = hit.end()
    out.append((text[at:], None))
    return out
