"""Placeholders for long pastes."""

from __future__ import annotations

import pytest
from mlxchat.cli.pastes import Pastes

pytestmark = pytest.mark.plain

LONG = "\n".join(f"line {n}" for n in range(120))


def test_a_short_paste_is_shown_as_it_is() -> None:
    pastes = Pastes()
    assert pastes.shorten("one\r\ntwo\rthree") == "one\ntwo\nthree"
    assert pastes.expand("[pasted 120 lines]") == "[pasted 120 lines]"


def test_a_long_one_is_expanded_wherever_it_stands() -> None:
    pastes = Pastes()
    name = pastes.shorten(LONG)
    assert name == "[pasted 120 lines]"
    assert pastes.expand(f"look: {name} and again {name}") == f"look: {LONG} and again {LONG}"


def test_two_of_the_same_length_are_told_apart() -> None:
    pastes = Pastes()
    first, second = pastes.shorten(LONG), pastes.shorten(LONG.upper())
    assert second == "[pasted 120 lines #2]"
    assert pastes.shorten(LONG) == first, "the same text is the same paste"
    assert pastes.expand(first + second) == LONG + LONG.upper()


def test_one_long_line_is_counted_in_characters() -> None:
    assert Pastes().shorten("x" * 1234) == "[pasted 1,234 characters]"


def test_a_placeholder_goes_as_one() -> None:
    pastes = Pastes()
    name = pastes.shorten(LONG)
    assert pastes.length_before(f"see {name}") == len(name)
    assert pastes.length_before(f"see {name} ") == 0
