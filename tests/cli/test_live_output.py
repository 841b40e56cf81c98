"""A turn on a terminal that can render, driven event by event with a clock of its own."""

from __future__ import annotations

import os
import re

import pyte
import pytest
from mlxchat.cli import live_output
from mlxchat.cli.live_output import LiveOutput
from mlxchat.cli.streams import ColorChoice, Streams
from mlxchat.cli.turn_result import follow
from mlxchat.engine.events import Event, Notice, PrefillProgress, ReasoningDelta, TextDelta, ToolCallDone, TurnDone
from mlxchat.engine.messages import ToolCall, assistant
from mlxchat.engine.stats import RequestStats
from support.fake_tty import Tty

pytestmark = pytest.mark.plain


class Screen:
    """Both streams on one pyte screen; time passes when a test says so."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        columns: int = 60,
        rows: int = 20,
        color: ColorChoice = "auto",
        **more: bool,
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._screen.set_mode(pyte.modes.LNM)
        stream = pyte.Stream(self._screen)
        self.raw = ""
        screen = self

        class Terminal(Tty):
            def write(self, text: str) -> int:
                screen.raw += text
                stream.feed(text)
                return len(text)

        monkeypatch.setattr(live_output, "size_of", lambda _: os.terminal_size((columns, rows)))
        self.time = 10.0
        both = Terminal()
        self.streams = Streams(color, stdout=both, stderr=both)
        self.output = LiveOutput(self.streams, clock=lambda: self.time, ticker=False, **more)

    def show(self, *events: Event, after: float = 0.1) -> str:
        """The screen once these have come, each so many seconds after the one before."""
        for event in events:
            self.time += after
            self.output.event(event)
        return self.text

    def turn(self, *events: Event) -> str:
        """The screen once a turn of these has ended."""
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        self.output.turn(follow(iter([*events, TurnDone(assistant(text), "stop", RequestStats())]), self.output))
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()


@pytest.fixture(autouse=True)
def a_good_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(monkeypatch)


def test_an_answer_is_rendered_and_ends_its_line(screen: Screen) -> None:
    assert screen.turn(TextDelta("- on"), TextDelta("e\n- two")) == "• one\n• two"
    assert screen.turn(TextDelta("**three**\n")) == "• one\n• two\nthree"
    assert "\x1b[1mthree" in screen.raw


def test_markdown_off_is_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, markdown=False)
    assert screen.turn(TextDelta("- **on"), TextDelta("e**\n- two")) == "- **one**\n- two"
    screen.output.choose_markdown("on")
    assert screen.turn(TextDelta("- three")).endswith("markdown is on\n• three")


def test_sequences_of_the_model_are_taken_out(screen: Screen) -> None:
    screen.turn(ReasoningDelta("\x1b[2J"), TextDelta("a\x1b"), TextDelta("]0;ti"), TextDelta("tle\x07b \x9b31mred"))
    assert screen.text == "thought 0.0 s\n\nab red"
    assert not re.search(r"\x1b\[2J|\x1b\]|\x9b", screen.raw)


def test_updates_are_no_more_than_twenty_a_second(screen: Screen) -> None:
    screen.output.event(TextDelta("one"))
    before = len(screen.raw)
    screen.time += 0.04
    screen.output.event(TextDelta(" two"))
    assert len(screen.raw) == before
    screen.time += 0.02
    screen.output.tick()
    assert screen.text == "one two"
    screen.output.tick()
    assert screen.raw.count("\x1b[?2026h") <= 2


def test_reasoning_shows_its_last_lines_and_folds(screen: Screen) -> None:
    lines = [ReasoningDelta(f"thought {n}\n", n) for n in range(1, 9)]
    assert screen.show(*lines) == "thinking … 8 tokens, 0.7 s\n" + "\n".join(f"thought {n}" for n in range(4, 9))
    assert screen.turn(TextDelta("So.")) == "thought 8 tokens, 0.7 s\n\nSo."
    assert screen.output.last_reasoning.startswith("thought 1\n")


def test_ctrl_o_hides_and_shows_it(screen: Screen) -> None:
    screen.show(ReasoningDelta("because", 1))
    screen.output.reasoning_key()
    assert screen.text == "thinking … 1 tokens, 0.0 s"
    screen.output.reasoning_key()
    assert screen.text == "thinking … 1 tokens, 0.0 s\nbecause"


def test_ctrl_o_in_the_answer_prints_the_folded_reasoning_below_it(screen: Screen) -> None:
    screen.show(ReasoningDelta("because", 1), TextDelta("So"))
    screen.output.reasoning_key()
    assert screen.text == "thought 1 tokens, 0.1 s\n\nSo"
    assert screen.turn(TextDelta(".")) == "thought 1 tokens, 0.1 s\n\nSo.\nbecause"


def test_reasoning_that_comes_to_no_answer_is_all_there_is(screen: Screen) -> None:
    text = screen.turn(ReasoningDelta("Paris, I think", 3))
    assert text == "thought 3 tokens, 0.0 s\n\nParis, I think\n(the model ended without an answer)"


def test_thinking_hidden(screen: Screen) -> None:
    screen.output.show_reasoning(False)
    assert screen.show(ReasoningDelta("because", 1)) == "thinking … 1 tokens, 0.0 s"


def test_the_bar_comes_after_a_while_and_goes_away(screen: Screen) -> None:
    assert screen.show(PrefillProgress(1000, 4000, 1000)) == ""
    screen.time += 0.2
    screen.output.tick()
    assert screen.text == ""
    screen.time += 0.2
    screen.output.tick()
    assert "1,000 of 4,000 tokens · 1,000 reused · 0 s" in screen.text
    assert screen.text.startswith("▒▒▒▒░░░░░░░░░░░░ ")
    screen.time += 1.6
    assert screen.show(PrefillProgress(3000, 4000, 1000), after=0.0) == (
        "▒▒▒██████░░░ 3,000 of 4,000 tokens · 1,000 tok/s · 1 s left"
    )
    assert screen.turn(PrefillProgress(4000, 4000, 1000), TextDelta("so")) == "so"


def test_a_notice_breaks_nothing_off(screen: Screen) -> None:
    screen.show(TextDelta("one\n\nhalf a "), Notice("look"), TextDelta("line"))
    assert screen.text == "one\nlook\n\nhalf a line"


def test_a_tool_call_comes_after_what_was_said(screen: Screen) -> None:
    text = screen.turn(TextDelta("Let me see"), ToolCallDone(ToolCall("1", "weather", {})), TextDelta("Rain"))
    assert re.search(r"Let me see\ncalls weather.*\nRain", text)


def test_a_question_in_the_middle_has_the_terminal_for_itself(screen: Screen) -> None:
    screen.show(TextDelta("Let me see"))
    with screen.streams.question():
        screen.streams.note("May I?")
        screen.output.tick()
    assert screen.show(TextDelta("Rain")) == "Let me see\nMay I?\nRain"


def test_held_back_until_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, stream=False)
    assert screen.show(TextDelta("- one")) == ""
    assert screen.turn(ReasoningDelta("because", 1), TextDelta("- one")) == "thought 1 tokens, 0.0 s\n\n• one"


def test_never_any_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, color="never")
    assert screen.turn(ReasoningDelta("b", 1), TextDelta("# T\n**a**")) == "thought 1 tokens, 0.0 s\n\n# T\n\n**a**"
    assert "m" not in re.findall(r"\x1b\[[\d;?]*([a-zA-Z])", screen.raw)


def test_no_color_leaves_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(monkeypatch)
    screen.turn(TextDelta("**a** and `b`"))
    assert "\x1b[1ma" in screen.raw
    assert not re.search(r"\x1b\[[\d;]*[349]\d", screen.raw)


def test_an_answer_longer_than_the_screen_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, rows=6)
    table = "| n |\n|---|\n" + "".join(f"| {n} |\n" for n in range(30))
    for start in range(0, len(table), 9):
        screen.show(TextDelta(table[start : start + 9]))
        assert "⋮" in screen.text or start < 60
    before = len(screen.raw)
    screen.turn()
    printed = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.raw[before:])
    assert re.findall(r"^ (\d+)$", printed, re.MULTILINE) == [str(n) for n in range(30)]
