"""An answer's Markdown as lines for a terminal, while it is still being written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, ListElement, Markdown, MarkdownElement
from rich.rule import Rule
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from .markdown_blocks import Block, Code, MarkdownBlocks, Prose
from .rich_lines import RichLines

_CONTEXT_LINES = 300
"""Lines of code before the new ones that are read again for what they begin: a long string, a comment."""

_MARKS = {"strong_open": "**", "strong_close": "**", "em_open": "*", "em_close": "*", "s_open": "~~", "s_close": "~~"}


class MarkdownView:
    """Renders an answer block by block. Fenced code comes line by line, everything else once its block is finished."""

    def __init__(self, lines: RichLines) -> None:
        self._lines = lines
        self._blocks = MarkdownBlocks()
        self._began = False

    def feed(self, text: str) -> None:
        """Take more of the answer."""
        self._blocks.feed(text)

    def draw(self, width: int) -> tuple[list[str], list[str]]:
        """The lines that are finished now, each given once, and those that may still change."""
        done = self._all(self._blocks.finished(), width)
        block = self._blocks.open()
        return done, self._render(block, width) if block is not None else []

    def end(self, width: int) -> list[str]:
        """The lines that are left once the answer is whole."""
        return self._all(self._blocks.finished(at_end=True), width)

    def _all(self, blocks: Iterable[Block], width: int) -> list[str]:
        lines: list[str] = []
        for block in blocks:
            rendered = self._render(block, width)
            self._began = self._began or bool(rendered)
            lines += rendered
        return lines

    def _render(self, block: Block, width: int) -> list[str]:
        """The block's lines, an empty one before it where it isn't the first."""
        if isinstance(block, Code):
            lines, joins = self._code(block, width), not block.opening
        else:
            lines, joins = self._lines.render(TerminalMarkdown(block, self._lines.styled), width), block.goes_on
        return ["", *lines] if lines and self._began and not joins else lines

    def _code(self, block: Code, width: int) -> list[str]:
        """Fence lines as they are, code highlighted. A whole line stays one, so that it can be copied."""
        lines = self._lines.dim(block.opening, width) if block.opening else []
        if block.lines:
            before = block.before[-_CONTEXT_LINES:]
            code = highlighted([*before, *block.lines], block.language)[len(before) :]
            lines += [
                line for text in code for line in self._lines.render(text, width if block.partial else 1 << 15) or [""]
            ]
        return lines + (self._lines.dim(block.closing, width) if block.closing else [])


class TerminalMarkdown(Markdown):
    """A block as rich renders it, but for lists, headings, code and rules: those are plainer, and can be copied.

    styled   whether the terminal shows bold and italic; if not, their marks stay
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {}

    def __init__(self, block: Prose, styled: bool) -> None:
        super().__init__("", hyperlinks=False)  # a link's address is to be seen
        self.parsed = _shown(block.tokens, styled)


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = {}


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        language = "" if self.lexer_name == "text" else self.lexer_name
        code = Text("\n").join(highlighted(str(self.text).rstrip().split("\n"), self.lexer_name))
        yield Text(f"```{language}", style="dim")
        yield code
        yield Text("```", style="dim")


class _Rule(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="dim")


class _List(ListElement):
    """Items with a bullet, or their number and a dot."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.item.bullet")
        for number, item in enumerate(self.items, self.list_start or 0):
            mark = "• " if self.list_type == "bullet_list_open" else f"{number}. "
            inner = options.update(width=max(1, options.max_width - len(mark)))
            for row, line in enumerate(console.render_lines(item.elements, inner, pad=False)):
                yield Segment(mark, style) if row == 0 else Segment(" " * len(mark))
                yield from line
                yield Segment.line()


TerminalMarkdown.elements = {
    **Markdown.elements,
    "heading_open": _Heading,
    "fence": _Code,
    "code_block": _Code,
    "hr": _Rule,
    "bullet_list_open": _List,
    "ordered_list_open": _List,
}


def highlighted(lines: Sequence[str], language: str) -> list[Text]:
    """Code in the terminal's own colours, line by line."""
    text = Syntax("", language or "text", theme=code_theme(os.environ), background_color="default").highlight(
        "\n".join(lines)
    )
    return list(text.split("\n", allow_blank=True))[: len(lines)]


def code_theme(environment: Mapping[str, str]) -> str:
    """Of the themes that use the terminal's own colours the one that can be read on its background, as far as told."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi_light" if background in ("7", "15") else "ansi_dark"


def _shown(tokens: Sequence[Token], styled: bool) -> list[Token]:
    """Tokens as they are to be rendered: a model's line breaks kept, no address said twice."""
    shown: list[Token] = []
    for token in tokens:
        if token.children:
            children = _inline(token.children, styled)
            if not styled and shown and shown[-1].type == "heading_open":
                children = [Token("text", "", 0, content=f"{'#' * int(shown[-1].tag[1:])} "), *children]
            token = token.copy(children=children)
        shown.append(token)
    return shown


def _inline(tokens: Sequence[Token], styled: bool) -> list[Token]:
    shown: list[Token] = []
    for index, token in enumerate(tokens):
        if token.type == "softbreak":
            token = token.copy(type="hardbreak")
        elif token.type in ("link_open", "link_close") and _is_bare(tokens, index):
            continue
        elif not styled and token.type in _MARKS:
            token = Token("text", "", 0, content=_MARKS[token.type])
        elif not styled and token.type == "code_inline":
            token = Token("text", "", 0, content=f"{token.markup}{token.content}{token.markup}")
        shown.append(token)
    return shown


def _is_bare(tokens: Sequence[Token], index: int) -> bool:
    """Whether the link that opens or closes here has no other words than its address."""
    opening = index if tokens[index].type == "link_open" else index - 2
    if opening < 0 or opening + 2 >= len(tokens) or tokens[opening].type != "link_open":
        return False
    words, closing = tokens[opening + 1], tokens[opening + 2]
    return closing.type == "link_close" and str(tokens[opening].attrs.get("href", "")) in (
        words.content,
        f"mailto:{words.content}",
    )
