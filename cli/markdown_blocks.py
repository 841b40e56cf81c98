"""Streamed Markdown, cut into blocks: a block is finished once the next one has begun."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})([^\n]*)$")
_UNDECIDED = re.compile(r"^\s*(?:[-=*_#>+`~|:.)\d\s]*|(?:`{3,}|~{3,}).*)$")
"""A line that isn't over yet and might become anything: a rule, a heading's underline, an item, a fence."""

_LISTS = ("bullet_list_open", "ordered_list_open")


@dataclass(frozen=True)
class Prose:
    """A whole block of any kind but a fence, parsed. `goes_on`: it is another item of the list before it."""

    tokens: list[Token]
    goes_on: bool = False


@dataclass(frozen=True)
class Code:
    """Whole lines of a fenced block. `opening` is its first line, where they are the first; `closing` its last.

    before    the block's lines that came before these
    partial   the only line isn't whole yet
    """

    language: str
    before: tuple[str, ...]
    lines: tuple[str, ...]
    opening: str = ""
    closing: str = ""
    partial: bool = False


Block = Prose | Code


class MarkdownBlocks:
    """Cuts what it is fed. `finished` gives each block once, `open` what may still change."""

    def __init__(self) -> None:
        self._parser = parser()
        self._env: dict[str, Any] = {}  # link definitions, which later blocks refer to
        self._source = ""
        self._in_list = False
        self._fence: _Fence | None = None

    def feed(self, text: str) -> None:
        """Take more of the text."""
        self._source += text

    def finished(self, at_end: bool = False) -> list[Block]:
        """The blocks that are finished now; with `at_end` whatever is left."""
        blocks: list[Block] = []
        while True:
            if self._fence is None:
                blocks += self._prose(at_end)
            if self._fence is None:
                return blocks
            blocks += self._code(self._fence, at_end)
            if self._fence is not None:
                return blocks

    def open(self) -> Block | None:
        """The block that may still change, as it stands."""
        if self._fence is not None:
            return self._fence.partial(self._source)
        groups = self._groups(_decided(self._source))
        return groups[0].block if groups else None

    def _groups(self, source: str) -> list[_Group]:
        return _grouped(self._parser.parse(source, self._env), self._in_list)

    def _prose(self, at_end: bool) -> list[Block]:
        """All but the last block, which stays in the source; a fence that begins there is opened."""
        source = self._source if at_end else _decided(self._source)
        groups = self._groups(source)
        if not groups:
            return []
        *done, last = groups
        lines = self._source.split("\n")[last.line :]
        blocks = [group.block for group in done]
        opening = _FENCE.match(lines[0]) if last.is_fence else None
        if opening is not None and len(lines) > 1:
            self._fence = _Fence(opening)
            self._source, self._in_list = "\n".join(lines[1:]), False
            return [*blocks, self._fence.opened()]
        if at_end:
            self._source, self._in_list = "", False
            return [*blocks, last.block]
        if done:
            self._source, self._in_list = "\n".join(lines), last.goes_on
        return blocks

    def _code(self, fence: _Fence, at_end: bool) -> list[Block]:
        """The whole lines of the fence that have come; behind its end the source is prose again."""
        *whole, rest = self._source.split("\n")
        if at_end and rest:
            whole, rest = [*whole, rest], ""
        block, left = fence.take(whole)
        self._source = "\n".join([*left, rest])
        if fence.closed or at_end:
            self._fence = None
        return [block] if block.lines or block.closing else []


class _Fence:
    """A fenced block that has been opened."""

    def __init__(self, opening: re.Match[str]) -> None:
        self._indent, self._marker = len(opening[1]), opening[2]
        self._opening = opening[0].strip()
        self._language = opening[3].strip().partition(" ")[0]
        self._taken: tuple[str, ...] = ()
        self.closed = False

    def opened(self) -> Code:
        return Code(self._language, (), (), opening=self._opening)

    def take(self, lines: list[str]) -> tuple[Code, list[str]]:
        """The code in `lines`, and the lines that come after the block."""
        for index, line in enumerate(lines):
            if self._closes(line):
                self.closed = True
                return self._code(lines[:index], line.strip()), lines[index + 1 :]
        return self._code(lines), []

    def partial(self, line: str) -> Code | None:
        """The line that isn't whole yet."""
        if not line or set(line.strip()) <= {self._marker[0]}:
            return None
        return Code(self._language, self._taken, (self._dedented(line),), partial=True)

    def _code(self, lines: list[str], closing: str = "") -> Code:
        code = tuple(self._dedented(line) for line in lines)
        block = Code(self._language, self._taken, code, closing=closing)
        self._taken += code
        return block

    def _closes(self, line: str) -> bool:
        match = _FENCE.match(line.rstrip())
        return match is not None and match[2].startswith(self._marker) and not match[3].strip()

    def _dedented(self, line: str) -> str:
        blanks = len(line) - len(line.lstrip(" "))
        return line[min(blanks, self._indent) :]


@dataclass(frozen=True)
class _Group:
    """One block's tokens, and the line that it begins at."""

    tokens: list[Token]
    line: int
    goes_on: bool = False

    @property
    def is_fence(self) -> bool:
        return self.tokens[0].type == "fence"

    @property
    def block(self) -> Block:
        if not self.is_fence:
            return Prose(self.tokens, self.goes_on)
        [fence] = self.tokens
        language, lines = fence.info.strip().partition(" ")[0], fence.content.removesuffix("\n").split("\n")
        return Code(language, (), tuple(lines), f"{fence.markup}{fence.info}".strip(), fence.markup)


def parser() -> MarkdownIt:
    """CommonMark with tables; HTML and pictures stay text, so that nothing a model writes is lost."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def _grouped(tokens: list[Token], in_list: bool) -> list[_Group]:
    """The blocks, a list's items apart. `in_list`: the first one goes on with a list whose start has been cut off."""
    groups: list[_Group] = []
    start = 0
    for index, token in enumerate(tokens):
        if token.level == 0 and token.nesting <= 0:
            block = tokens[start : index + 1]
            start = index + 1
            groups += _items(block) if block[0].type in _LISTS else [_Group(block, (block[0].map or [0])[0])]
    if groups and in_list:
        groups[0] = replace(groups[0], goes_on=groups[0].tokens[0].type in _LISTS)
    return groups


def _items(tokens: list[Token]) -> list[_Group]:
    """A list's items, each as a list of its own."""
    opening, *inner, closing = tokens
    starts = [index for index, token in enumerate(inner) if token.type == "list_item_open" and token.level == 1]
    groups = []
    for start, end in zip(starts, [*starts[1:], len(inner)], strict=True):
        first = inner[start]
        number = {"start": int(first.info)} if first.info else {}
        head = opening.copy(attrs={**opening.attrs, **number})
        groups.append(_Group([head, *inner[start:end], closing], (first.map or [0])[0], goes_on=start > 0))
    return groups


def _decided(source: str) -> str:
    """The source without a last line that could still become anything."""
    whole, newline, last = source.rpartition("\n")
    return whole + newline if _UNDECIDED.match(last) else source
