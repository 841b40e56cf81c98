"""Lines that fit the terminal, by the cells that their characters take."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mlxchat.cli.conversation_map import tree_lines
from mlxchat.cli.line_breaking import broken, cells, cut, wrapped
from mlxchat.cli.streams import Streams
from mlxchat.engine.conversation_tree import ConversationTree
from mlxchat.engine.messages import assistant, user
from rich.cells import cell_len
from support.fake_tty import Tty

pytestmark = pytest.mark.plain

WIDE = "错误 文件 不 存在 请 检查 名称 和 权限 " * 4
EMOJI = "🙂 🙂🙂 👍🏻 ❤️ 👨‍👩‍👧 🏳️‍🌈 " * 6


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_lines_break_between_words(columns: int) -> None:
    line = "  1  the words of a line  and a/path/that/is/longer/than/twenty/columns behind them, " * 2
    lines = broken(line, columns).split("\n")
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert all(len(one) <= columns or " " not in one.strip() for one in lines)
    assert lines[0].startswith("  1  the")
    assert broken("a\n\nb  c", columns) == "a\n\nb  c"


@pytest.mark.parametrize("columns", [11, 20, 61])
@pytest.mark.parametrize("line", [WIDE, EMOJI, f"  1  café {WIDE}{EMOJI}"])
def test_wide_characters_count_as_two(line: str, columns: int) -> None:
    lines = broken(line, columns).split("\n")
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert max(map(cell_len, lines)) <= columns
    assert all(cell_len(f"{one} {after.split()[0]}") > columns for one, after in pairwise(lines))


def test_counted_by_characters_they_would_overflow() -> None:
    assert len(WIDE[:60]) == 60 < cell_len(WIDE[:60])


def test_lines_that_begin_with_something() -> None:
    assert wrapped("one two 三四 five", 9, "a: ", "   ") == ["a: one", "   two", "   三四", "   five"]
    assert wrapped("averylongword b", 6, "> ", "  ") == ["> averylongword", "  b"]
    assert wrapped("", 6, "> ") == ["> "]


@pytest.mark.parametrize(
    ("text", "room", "short"),
    [("日本語", 6, "日本語"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("abc def", 5, "abc…"), ("🙂🙂", 3, "🙂…")],
)
def test_cut(text: str, room: int, short: str) -> None:
    assert cut(text, room) == short
    assert cells(short) <= room


def test_a_note_on_a_narrow_terminal_is_broken_by_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    terminal = Tty()
    Streams(stderr=terminal).note("错误 文件 不存在")
    assert terminal.getvalue() == "错误 文件\n不存在\n"


def test_branches_with_wide_words_fit_the_terminal() -> None:
    tree = ConversationTree()
    here = tree.grow([user("日本語の" * 30), assistant("🙂" * 60)])
    assert [cell_len(line) in (39, 40) for line in tree_lines(tree, here, 40)] == [True, True]
