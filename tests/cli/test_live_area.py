"""The bottom lines of a terminal: what is written for good, what may change, and what a resize does to both."""

from __future__ import annotations

import os

import pyte
import pytest
from mlxchat.cli.live_area import LiveArea, reflows, width_of

pytestmark = pytest.mark.plain


class Window:
    """A terminal without a program: pyte behind a LiveArea. It breaks no line anew, as xterm doesn't."""

    def __init__(self, rows: int = 8, columns: int = 20, reflow: bool = False) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=500)
        self.screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self.screen)
        self.writes: list[str] = []
        self.area = LiveArea(self._write, lambda: os.terminal_size((self.screen.columns, self.screen.lines)), reflow)

    def _write(self, text: str) -> None:
        self.writes.append(text)
        self._stream.feed(text)

    @property
    def lines(self) -> list[str]:
        gone = ["".join(row[at].data for at in range(self.screen.columns)) for row in self.screen.history.top]
        lines = [line.rstrip() for line in [*gone, *self.screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def test_live_lines_change_and_finished_ones_stay() -> None:
    window = Window()
    window.area.update(["done 1"], ["open", "open too"])
    assert window.lines == ["done 1", "open", "open too"]
    window.area.update(["done 2"], ["other"])
    assert window.lines == ["done 1", "done 2", "other"]
    window.area.update(["done 3"], [])
    assert window.area.is_empty
    window.area.update(["done 4"], [])
    assert window.lines == ["done 1", "done 2", "done 3", "done 4"]


def test_what_has_not_changed_is_not_written_again() -> None:
    window = Window()
    window.area.update([], ["one", "two"])
    window.area.update([], ["one", "two"])
    assert len(window.writes) == 1
    window.area.update([], ["one", "three"])
    assert "one" not in window.writes[-1]
    window.area.update([], ["one", "three", "four"])
    assert "three" not in window.writes[-1]
    assert window.lines == ["one", "three", "four"]
    window.area.update(["one", "three", "four"], [])
    assert window.writes[-1].count("\n") == 1
    assert window.lines == ["one", "three", "four"]


def test_fewer_lines() -> None:
    window = Window()
    window.area.update([], ["one", "two", "three"])
    window.area.update([], ["one"])
    assert window.lines == ["one"]
    window.area.update([], ["one", "four"])
    assert window.lines == ["one", "four"]
    window.area.update([], [])
    window.area.update(["five"], [])
    assert window.lines == ["five"]


def test_one_update_is_one_write() -> None:
    window = Window()
    window.area.update([], ["one", "two"])
    window.area.update(["one"], ["three"])
    assert len(window.writes) == 2
    assert window.writes[-1].startswith("\x1b[?2026h"), "shown at once"
    assert window.writes[-1].endswith("\x1b[?2026l")


def test_more_live_lines_than_the_screen_has() -> None:
    window = Window(rows=6)
    window.area.update([], [f"line {n}" for n in range(20)])
    assert window.lines == ["⋮ 17 lines above", "line 17", "line 18", "line 19"]
    window.area.update([f"line {n}" for n in range(21)], ["open"])
    assert window.lines == [*(f"line {n}" for n in range(21)), "open"]


def test_a_narrower_window_that_breaks_no_lines() -> None:
    window = Window(columns=20)
    window.area.update(["kept"], ["a line of 18 cells", "open"])
    window.screen.resize(8, 10)
    assert window.area.resized
    window.area.update([], ["a line of", "18 cells", "open"])
    assert window.lines == ["kept", "a line of", "18 cells", "open"]
    assert not window.area.resized


def test_a_narrower_window_that_breaks_lines_anew() -> None:
    window = Window(columns=20, reflow=True)
    window.area.update(["kept"], ["a line of 18 cells", "open"])
    reflowed = Window(columns=10, reflow=True)
    for line in ("kept", "a line of 18 cells", "open"):  # as such a terminal shows it now
        reflowed._stream.feed(line + ("" if line == "open" else "\n"))
    window.screen, window._stream = reflowed.screen, reflowed._stream
    window.area.update([], ["a line of", "18 cells", "open"])
    assert window.lines == ["kept", "a line of", "18 cells", "open"]


def test_a_terminal_taken_for_another_kind_is_caught() -> None:
    window = Window(columns=20, reflow=True)
    window.area.update(["kept"], ["a line of 18 cells", "open"])
    window.screen.resize(8, 10)
    window.area.update([], ["a line of", "18 cells", "open"])
    assert window.lines != ["kept", "a line of", "18 cells", "open"]


def test_a_wider_window() -> None:
    window = Window(columns=10)
    window.area.update(["kept"], ["some", "words"])
    window.screen.resize(8, 20)
    window.area.update([], ["some words"])
    assert window.lines == ["kept", "some words"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen-256color"}, False),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux"}, True),
    ],
)
def test_which_terminals_break_lines_anew(environment: dict[str, str], expected: bool) -> None:
    assert reflows(environment) is expected


def test_colours_take_no_room() -> None:
    assert width_of("\x1b[1;36mcode\x1b[0m") == 4
    assert width_of("日本") == 4
