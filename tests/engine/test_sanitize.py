"""Model text can't reach the terminal as anything but text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine import sanitize as module
from mlxchat.engine.sanitize import BIDI_CONTROLS, Sanitizer, sanitize, sanitize_line

pytestmark = pytest.mark.plain

CASES = [
    ("plain", "plain"),
    ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ("a\x1b[31mred\x1b[0mb", "aredb"),
    ("a\x1b[2J\x1b[1;1Hb", "ab"),
    ("a\x1b]0;title\x07b", "ab"),
    ("a\x1b]52;c;aGVsbG8=\x1b\\b", "ab"),
    ("a\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
    ("a\x1bPq payload\x1b\\b", "ab"),
    ("a\x1b_payload\x1b\\b", "ab"),
    ("a\x1b(0b", "ab"),
    ("a\x1b7b\x1b8c", "abc"),
    ("a\x9b31mb\x9dtitle\x9cc", "abc"),
    ("a\x85b\x7fc\x00d\x08e\rf", "abcdef"),
    ("bell\x07", "bell"),
    ("unfinished \x1b]0;title\nnext line", "unfinished \nnext line"),
    ("unfinished \x1b[31\nnext line", "unfinished \nnext line"),
    ("at the end \x1b", "at the end "),
    ("esc esc \x1b\x1b[1mb", "esc esc b"),
    ("a\x1b]0;\x1b[31mstill the title\x1b\\b", "ab"),
    ("half \ud83d pair", "half \ufffd pair"),
    ("crlf\r\nline", "crlf\nline"),
    ("ünïcödé 日本 🙂", "ünïcödé 日本 🙂"),
]


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_what_is_shown(text: str, shown: str) -> None:
    assert sanitize(text) == shown


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_it_is_the_same_character_by_character(text: str, shown: str) -> None:
    sanitizer = Sanitizer()
    assert "".join(sanitizer.feed(char) for char in text) == shown


nasty = st.text(alphabet=st.sampled_from("ab[]0;m\\P_\x1b\x07\x9b\x9c\x9d\n\t\r\x00(7"), max_size=40)


@given(nasty, st.lists(st.integers(0, 40), max_size=4))
def test_splits_change_nothing_and_no_control_gets_through(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    sanitizer = Sanitizer()
    pieces = "".join(sanitizer.feed(text[a:b]) for a, b in pairwise(edges))
    assert pieces == sanitize(text)
    assert all(char in "\n\t" or char >= " " for char in pieces)
    assert not any("\x7f" <= char <= "\x9f" for char in pieces)
    assert pieces.count("\n") == text.count("\n"), "a newline is never swallowed"


def test_a_filter_that_forgets_between_deltas_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Sanitizer.feed
    monkeypatch.setattr(module.Sanitizer, "feed", lambda self, text: whole(Sanitizer(), text))
    sanitizer = Sanitizer()
    assert sanitizer.feed("a\x1b") + sanitizer.feed("[31mb") != "ab"


def test_a_line_of_the_programs_own_shows_what_would_turn_it() -> None:
    assert sanitize_line("a\u202eb\u2066\x1b[1mc\u200f") == r"a\u202eb\u2066c\u200f"
    assert all(sanitize(char) == char and sanitize_line(char) != char for char in BIDI_CONTROLS), "prose keeps them"
    assert sanitize_line("שלום é日🙂\n") == "שלום é日🙂\n"
