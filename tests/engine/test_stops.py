"""Stop strings over streamed text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlxchat.engine.stops import StopStrings

pytestmark = pytest.mark.exact


def stream(stops: tuple[str, ...], chunks: list[str]) -> tuple[list[str], bool]:
    """What each chunk let through, then what the end did."""
    reader = StopStrings(stops)
    shown = [reader.feed(chunk) for chunk in chunks]
    stopped = reader.stopped
    return [*shown, "" if stopped else reader.finish()], stopped


@pytest.mark.parametrize(
    ("stops", "chunks", "shown"),
    [
        ((), ["a", "b"], ["a", "b", ""]),
        (("END",), ["one EN", "D two"], ["one ", "", ""]),
        (("END",), ["one EN", "tire"], ["one ", "ENtire", ""]),
        (("END",), ["one E", "N"], ["one ", "", "EN"]),
        (("END",), ["E", "N", "D"], ["", "", "", ""]),
        (("aab",), ["aaab"], ["a", ""]),
        (("aab",), ["a", "a", "a", "b"], ["", "", "a", "", ""]),
        (("xyz", "y"), ["axy"], ["ax", ""]),
        (("late", "soon"), ["soon late"], ["", ""]),
        (("", "x"), ["ax"], ["a", ""]),
        (("END",), ["a END", " more"], ["a ", "", ""]),
    ],
)
def test_nothing_of_a_stop_string_is_shown(stops: tuple[str, ...], chunks: list[str], shown: list[str]) -> None:
    assert stream(stops, chunks)[0] == shown


@given(st.text("ab<", max_size=30), st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3), st.data())
def test_chunks_leave_no_trace(text: str, stops: list[str], data: st.DataObject) -> None:
    at = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    shown, stopped = stream(tuple(stops), chunks)
    found = [text.find(stop) for stop in stops if stop in text]
    whole = "".join(shown)
    assert stopped == bool(found)
    if not found:
        assert whole == text
    else:
        assert text.startswith(whole)
        assert not any(stop in whole for stop in stops)
        # Read in pieces, the stop string that is complete first wins; in one piece, the leftmost.
        assert len(whole) >= min(found)
        assert stream(tuple(stops), [text])[0][0] == text[: min(found)]


def test_only_what_could_begin_a_stop_string_is_held_back() -> None:
    reader = StopStrings(("<stop>",))
    assert reader.feed("a < b <st") == "a < b "
    assert reader.feed("ar") == "<star"
