"""The HTML report: one file that loads nothing, numbers only unless asked, every text as text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from mlxchat.transcripts.charts import Bars, Series, bars, timeline
from mlxchat.transcripts.report import page
from mlxchat.transcripts.rows import Disk, Result, Totals, percentiles
from support.replays import ANSI, SCRIPT, result, row, rows, transcript

pytestmark = pytest.mark.plain

SECRET = "a word that only the transcript has"


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "xlink:href")]
        self.links += [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def whole(with_text: bool) -> str:
    return page(transcript(), "smollm2", result(), with_text)


@pytest.mark.parametrize("with_text", [False, True])
def test_the_page_is_whole_and_loads_nothing(with_text: bool) -> None:
    text = whole(with_text)
    seen = Page(text)
    assert seen.open == []
    assert seen.links == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(seen.tags)
    for way in ("url(", "@import", "http:", "https:", "javascript:"):
        assert way not in text
    assert "default-src 'none'" in text
    assert seen.tags.count("svg") == 5
    assert seen.tags.count("tr") == 1 + len(rows())
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_a_message_that_is_a_script_is_text() -> None:
    text = whole(with_text=True)
    assert SCRIPT not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert SCRIPT in "".join(Page(text).words)
    assert ANSI not in text
    assert "\\x1b[31mred" in text, "an escape character is shown as one"
    assert not any(ord(character) < 32 and character != "\n" for character in text)


def test_planted_text_that_is_not_escaped_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxchat.transcripts.report.shown", lambda text: text)
    assert "script" in Page(whole(with_text=True)).tags


def test_without_text_there_are_numbers_only() -> None:
    named = [row(1, SECRET, title=SECRET, parent=SECRET)]
    plain = page(transcript(), "m", result(named), with_text=False)
    assert SECRET not in plain
    assert "trace.jsonl" not in plain
    shown = page(transcript(), "m", result(named), with_text=True)
    assert SECRET in shown


def test_every_request_is_in_the_table() -> None:
    words = Page(whole(with_text=False)).words
    assert "skipped too long" in words
    assert "9,001" in words
    assert "reasoning dropped" in words
    assert any(word.startswith("1 (") or word == "2 (side)" for word in words)


def test_nothing_ran() -> None:
    empty = Result((row(1, outcome="no_request"),), 0.0, Disk(), 0)
    seen = Page(page(transcript(), "m", empty, with_text=False))
    assert "svg" not in seen.tags


def test_a_thousand_requests_make_a_page() -> None:
    many = result([row(n % 50 + 1, f"c{n % 30}") for n in range(1000)])
    text = page(transcript(), "m", many, with_text=False)
    assert len(text) < 3_000_000
    assert Page(text).open == []


def test_charts_keep_to_their_frame() -> None:
    made = bars(Bars("x", "s", ["1", "2"], [Series("a", "a", [1.0, 0.0]), Series("b", "b", [2.0, 5.0])], stacked=True))
    assert made.count("<rect") == 3
    assert bars(Bars("x", "s", ["1"], [Series("a", "a", [0.0])])).count("<rect") == 0
    lanes = timeline("x", [("a", 0.0, 1.0, 2.0), ("b", 2.0, 0.5, 2.5), ("a", 3.0, 1.0, 4.0)])
    assert lanes.count("<rect") == 4, "no box where no time went by"
    assert "<script>" not in timeline("x", [(SCRIPT, 0.0, 1.0, 2.0)])


def test_sums() -> None:
    totals = Totals.of(rows())
    assert totals.turns == 5
    assert totals.hit_rate is not None
    assert totals.hit_rate == pytest.approx(totals.cached_tokens / totals.prompt_tokens)
    assert totals.efficiency is not None
    assert Totals.of([]).efficiency is Totals.of([]).hit_rate is None
    baseline = result().baseline()
    assert baseline is not None
    assert baseline["requests"] == 4
    assert baseline["ratio"] == pytest.approx((4400 + 4500 + 900 + 4700) / (4321 + 402 + 403 + 404))
    assert result([row(1)]).baseline() is None
    assert percentiles([]) == {"p50": 0.0, "p95": 0.0}
    assert percentiles([1.0, 2.0, 3.0])["p50"] == 2.0
