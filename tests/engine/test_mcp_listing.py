"""What a server lists goes into every prompt, so there is an end to it, and whatever is left out is said."""

from __future__ import annotations

from typing import Any

import pytest
from mlxchat.engine.tools.mcp_listing import MOST_BYTES, MOST_PAGES, MOST_TOOLS, Listing
from mlxchat.engine.tools.tool import Tool

pytestmark = pytest.mark.plain


def tool(name: str, words: str = "") -> Tool:
    return Tool(name, {"name": name, "description": words, "parameters": {}}, "the server x", name)


def names(listing: Listing) -> list[str]:
    return [one.name for one in listing.tools]


def test_what_fits_is_used_whole_and_the_first_of_a_name_counts() -> None:
    listing = Listing()
    assert listing.wants_more([tool("a"), tool("b")], goes_on=True)
    assert not listing.wants_more([tool("c"), tool("a", "Another.")], goes_on=False)
    assert names(listing) == ["a", "b", "c"]
    assert listing.tools[0].function["description"] == ""
    assert listing.left_out == ""


def test_more_tools_than_go_into_a_prompt() -> None:
    listing = Listing()
    assert not listing.wants_more([tool(f"t{number}") for number in range(MOST_TOOLS + 5)], goes_on=True)
    assert names(listing) == [f"t{number}" for number in range(MOST_TOOLS)]
    assert listing.left_out == "5 tools (t128, t129, t130, …) and further pages"


def test_exactly_as_many_leave_nothing_out() -> None:
    listing = Listing()
    assert not listing.wants_more([tool(f"t{number}") for number in range(MOST_TOOLS)], goes_on=False)
    assert listing.left_out == ""


def test_pages_without_an_end() -> None:
    listing = Listing()
    pages = 1
    while listing.wants_more([tool(f"t{pages % 7}")], goes_on=True):
        pages += 1
    assert pages == MOST_PAGES
    assert len(listing.tools) == 7
    assert listing.left_out == "further pages"


@pytest.mark.parametrize("char", ["x", "é", "\ud800"])
def test_one_too_large_leaves_the_small_ones(char: str) -> None:
    listing = Listing()
    huge: Any = [tool("h" * 100, char * MOST_BYTES)]
    assert listing.wants_more([tool("a"), *huge, tool("b")], goes_on=True)
    listing.wants_more(huge, goes_on=False)
    assert names(listing) == ["a", "b"]
    assert listing.left_out == f"1 tool ({'h' * 40}…)", "listed twice, it is one"


def test_all_together_stay_within_the_bytes() -> None:
    listing = Listing()
    listing.wants_more([tool(f"t{number}", "x" * (MOST_BYTES // 10)) for number in range(20)], goes_on=False)
    assert names(listing) == [f"t{number}" for number in range(9)]
    assert listing.left_out == "11 tools (t9, t10, t11, …)"
