"""What rich renders, as lines of text with colours in them."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console
from rich.theme import Theme

if TYPE_CHECKING:
    from rich.console import RenderableType

_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "italic",
        "markdown.h6": "italic",
        "markdown.code": "bold cyan",  # rich's own have black backgrounds
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "cyan",
        "markdown.link": "none",
        "markdown.link_url": "blue underline",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)
_STYLED_BLANKS = re.compile(r"\x1b\[[\d;]*m *\x1b\[0m$")
_BLANKS = re.compile(r" +(\x1b\[0m)?$")


class RichLines:
    """Renders for a terminal. `styled` allows bold, dim, italic and the like, `color` colours too."""

    def __init__(self, styled: bool, color: bool) -> None:
        self.styled = styled
        self._console = Console(
            file=io.StringIO(),
            force_terminal=styled,
            color_system="auto" if styled else None,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
            theme=_THEME,
            legacy_windows=False,
        )

    def render(self, renderable: RenderableType, width: int) -> list[str]:
        """Its lines, none wider than `width` cells, no blanks at their ends, no empty ones before and after."""
        with self._console.capture() as captured:
            self._console.print(renderable, width=max(1, width))
        lines = [_stripped(line) for line in captured.get().split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        return lines

    def dim(self, text: str, width: int) -> list[str]:
        """Text in lines of words, dim."""
        from rich.text import Text

        return self.render(Text(text, style="dim"), width) if text else []


def _stripped(line: str) -> str:
    """The line without the blanks at its end, coloured or not."""
    while (shorter := _STYLED_BLANKS.sub("", line.rstrip(" "))) != line:
        line = shorter
    return _BLANKS.sub(r"\1", line)
