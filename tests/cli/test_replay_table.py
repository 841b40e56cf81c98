"""The table of a replay as people see it, against screens that are checked in."""

from __future__ import annotations

import pytest
from mlxchat.cli.replay_table import NARROWEST, Table, plain
from mlxchat.cli.replay_words import duration, missing_words, token_words
from mlxchat.transcripts.heading import Share
from rich.cells import cell_len
from support.replay_screens import GOLDEN, WIDTHS, screen, text
from support.replays import HOSTILE, row, rows

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("width", WIDTHS)
def test_the_screen_is_the_one_checked_in(width: int) -> None:
    assert screen(width) == (GOLDEN / f"replay_{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [*range(NARROWEST, 201, 7), 220])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    assert [line for line in screen(width).splitlines() if cell_len(line) > width] == []


def test_text_of_a_transcript_is_text() -> None:
    shown = screen(200)
    assert "<script>alert(1)</script> & red" in shown
    assert not any(ord(character) < 32 and character != "\n" for character in shown)
    assert r"\x1b]0;owned" in shown, "a token's own text, spelled out"


def test_planted_text_that_is_not_cleaned_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxchat.cli.replay_table.plain", lambda text: text)
    assert "\x1b" in screen(200)


def test_columns_come_with_the_width() -> None:
    titles = [
        [column.title for column in Table(width, compared=True, recorded=True).columns] for width in (60, 90, 200)
    ]
    assert titles[0] == ["#", "prompt", "cached", "new", "ttft"]
    assert {"uncached", "ratio"} < set(titles[1]) < set(titles[2])
    assert "memory" in titles[2]
    assert "uncached" not in [column.title for column in Table(200).columns]
    planned = [column.title for column in Table(200, planned=True).columns]
    assert "written" not in planned
    assert "reusable" in text(Table(200, planned=True).head())


def test_a_conversation_is_named_when_it_changes() -> None:
    table = Table(80)
    named = ["──" in text(line) for one in rows()[:4] for line in table.rows(one)]
    assert named == [True, False, False, True, False, True, False]


def test_wide_characters_keep_to_the_width() -> None:
    table = Table(60)
    lines = table.rows(row(1, title="日本語のタイトル" * 9))
    assert [cell_len(text(line)) <= 60 for line in lines] == [True, True]


def test_small_words() -> None:
    assert [duration(s) for s in (3, 89, 300, 7200)] == ["3 s", "89 s", "5 min", "2.0 h"]
    assert missing_words(Share(1, 0, ("tool schemas",))) == "the file has no tool schemas"
    assert missing_words(Share(4, 1000, ())) == "file has 0.4 % of the recorded prompt"
    assert (token_words(None), token_words("\n"), token_words("a")) == ("the end", '"\\n"', '"a"')
    assert plain(f"{HOSTILE}\nx") == "<script>alert(1)</script> & red x"
