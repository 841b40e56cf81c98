"""Markdown on a terminal: the same lines however the text was cut, each printed once."""

from __future__ import annotations

import random

import pytest
from mlxchat.cli import markdown_view
from mlxchat.cli.markdown_view import MarkdownView, code_theme
from mlxchat.cli.rich_lines import RichLines

pytestmark = pytest.mark.plain

ANSWER = """\
# Title

Some *text* with **bold** and `code`, a [link](http://x.y) and <http://z.w>.
Its second line
- one
- two
  - nested
    ```python
    x = 1
    ```
- three

1. first
2. second

   still the second
10. tenth

> a quote
> of two lines

| a | b |
|---|--:|
| 1 | 2 |

````markdown info
def f():
    ```
    return 1   # a line that is longer than the forty cells of this terminal
````
after <b>html</b>

---
    indented

Setext
------
~~~
not closed
"""
LINES = """\
# Title

Some *text* with **bold** and `code`, a
link (http://x.y) and http://z.w.
Its second line

• one
• two
  • nested
    ```python
    x = 1
    ```
• three

1. first
2. second
   still the second
10. tenth

▌ a quote
▌ of two lines

 a  b
 ────
 1  2

````markdown info
def f():
    ```
    return 1   # a line that is longer than the forty cells of this terminal
````

after <b>html</b>

────────────────────────────────────────

```
indented
```

## Setext

~~~
not closed
""".splitlines()


def rendered(text: str, chunk: int = 0, styled: bool = False, width: int = 40) -> list[str]:
    """All lines printed for good; `chunk` characters at a time, 0: at random."""
    view, out, at = MarkdownView(RichLines(styled, styled)), [], 0
    dice = random.Random(len(text))
    while at < len(text):
        step = chunk or dice.randint(1, 60)
        view.feed(text[at : at + step])
        at += step
        done, live = view.draw(width)
        out += done
        if live:
            assert not any(len(line) > width for line in live if not styled)
    return out + view.end(width)


@pytest.mark.parametrize("chunk", [3, 0, 10_000])
def test_the_lines_do_not_depend_on_how_the_text_came(chunk: int) -> None:
    assert rendered(ANSWER, chunk) == LINES


def test_a_cut_that_decides_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_view.MarkdownBlocks, "_prose", _eager(markdown_view.MarkdownBlocks._prose))
    assert rendered(ANSWER, 3) != LINES


def _eager(prose):  # type: ignore[no-untyped-def]
    return lambda self, at_end: prose(self, True)


def test_a_block_is_finished_once_the_next_has_begun() -> None:
    view = MarkdownView(RichLines(False, False))
    view.feed("one\ntwo")
    assert view.draw(40) == ([], ["one", "two"])
    view.feed("\n\nthree")
    assert view.draw(40) == (["one", "two"], ["", "three"])
    assert view.end(40) == ["", "three"]
    assert view.end(40) == []


def test_code_comes_line_by_line() -> None:
    view = MarkdownView(RichLines(False, False))
    view.feed("```py\na = 1\nb =")
    assert view.draw(40) == (["```py", "a = 1"], ["b ="])
    view.feed(" 2\n``")
    assert view.draw(40) == (["b = 2"], [])
    view.feed("`\nafter")
    assert view.draw(40) == (["```"], ["", "after"])


def test_list_items_come_one_by_one() -> None:
    view = MarkdownView(RichLines(False, False))
    view.feed("- one\n- two")
    assert view.draw(40) == (["• one"], ["• two"])


@pytest.mark.parametrize("begun", ["text\n-", "text\n==", "text\n``", "text\n1", "text\n|", "text\n  "])
def test_a_line_that_may_become_anything_is_held_back(begun: str) -> None:
    view = MarkdownView(RichLines(False, False))
    view.feed(begun)
    assert view.draw(40) == ([], ["text"])


def test_nothing_a_model_writes_is_lost() -> None:
    text = "<div>\nin html\n</div>\n\n![alt](http://picture) &amp; [a link][1]\n\n[1]: http://elsewhere\n"
    shown = "\n".join(rendered(text, 5))
    assert all(word in shown for word in ("<div>", "in html", "alt", "http://picture", "&"))


def test_only_its_width_and_colours_are_the_terminals() -> None:
    styled = "\n".join(rendered(ANSWER, 0, styled=True))
    assert "\x1b[1;36mcode\x1b[0m" in styled
    assert "\x1b]8" not in styled, "a link's address is seen, not hidden"
    assert not any("\x1b[4" in line and "m" in line and "\x1b[48" in line for line in styled.split("\n"))
    narrow = rendered("word " * 40, 0, width=20)
    assert max(map(len, narrow)) <= 20


def test_colours_that_can_be_read() -> None:
    assert code_theme({"COLORFGBG": "0;15"}) == "ansi_light"
    assert code_theme({"COLORFGBG": "15;0"}) == "ansi_dark"
    assert code_theme({}) == "ansi_dark"
