"""How a turn looks to a person."""

from __future__ import annotations

import io

import pytest
from mlxchat.cli.plain_output import PlainOutput
from mlxchat.cli.streams import Streams
from mlxchat.cli.turn_result import TurnResult, follow
from mlxchat.engine.events import (
    Event,
    Notice,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDone,
    TurnDone,
    TurnFailed,
)
from mlxchat.engine.messages import ToolCall, assistant
from mlxchat.engine.stats import FinishReason, RequestStats
from mlxchat.errors import EngineFailed
from support.fake_tty import Tty

pytestmark = pytest.mark.plain


class Screen:
    """Both streams of a terminal, written to one place in the order it happened."""

    def __init__(self, terminal: bool = True, **more: bool) -> None:
        self._both = Tty() if terminal else io.StringIO()
        self.time = 0.0
        streams = Streams("never", stdout=self._both, stderr=self._both)
        self.output = PlainOutput(streams, clock=lambda: self.time, **more)

    def turn(self, *events: Event, reason: FinishReason = "stop") -> TurnResult:
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        done = TurnDone(assistant(text), reason, RequestStats(prompt_tokens=3, prefill_tokens=3))
        result = follow(iter([*events, done]), self.output)
        self.output.turn(result)
        return result

    @property
    def text(self) -> str:
        return self._both.getvalue()


@pytest.fixture(autouse=True)
def a_good_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def test_an_answer_ends_its_line_once() -> None:
    screen = Screen()
    screen.turn(TextDelta("one "), TextDelta("two"))
    screen.turn(TextDelta("three\n"))
    assert screen.text == "one two\nthree\n"


def test_an_empty_answer_is_no_line() -> None:
    screen = Screen()
    screen.turn(reason="interrupted")
    assert screen.text == ""


def test_a_turn_that_ends_without_an_answer_is_said_to() -> None:
    """Else a pipe would see nothing at all, and exit code 0."""
    screen = Screen()
    screen.turn(ReasoningDelta("because"))
    assert screen.text == "because\n\n(the model ended without an answer)\n"


def test_a_sequence_split_over_deltas_is_taken_out() -> None:
    screen = Screen()
    screen.turn(TextDelta("a\x1b"), TextDelta("]0;ti"), TextDelta("tle\x07b"))
    assert screen.text == "ab\n"


def test_an_unfinished_sequence_does_not_reach_into_the_next_turn() -> None:
    screen = Screen()
    screen.turn(TextDelta("a\x1b]0;ti"))
    screen.turn(TextDelta("tle"))
    assert screen.text == "a\ntle\n"


def test_reasoning_stands_before_the_answer_on_a_terminal() -> None:
    screen = Screen()
    screen.turn(ReasoningDelta("be\x1b[1m"), ReasoningDelta("cause"), TextDelta("so"))
    assert screen.text == "because\n\nso\n"


def test_reasoning_alone_ends_its_line() -> None:
    screen = Screen()
    screen.turn(ReasoningDelta("because\n"), reason="interrupted")
    assert screen.text == "because\n\n"


def test_a_pipe_gets_neither_reasoning_nor_progress() -> None:
    screen = Screen(terminal=False)
    screen.turn(PrefillProgress(1, 9, 0), ReasoningDelta("because"), TextDelta("so"))
    assert screen.text == "so\n"


def test_progress_comes_after_a_while_and_goes_away() -> None:
    screen = Screen()
    screen.output.event(PrefillProgress(0, 4000, 1000))
    assert screen.text == ""
    screen.time = 0.5
    screen.output.event(PrefillProgress(2048, 4000, 1000))
    assert screen.text == "\r\x1b[Kreading 2,048 of 4,000 tokens (1,000 reused) …"
    screen.output.event(PrefillProgress(4000, 4000, 1000))
    screen.turn(TextDelta("so"))
    assert screen.text.endswith("…\r\x1b[Kso\n")


def test_notices_and_tool_calls_are_lines_of_their_own() -> None:
    screen = Screen()
    screen.turn(Notice("look"), ToolCallDone(ToolCall("1", "weather", {"in": "Paris"})), TextDelta("so"))
    assert screen.text == 'look\ncalls weather {"in": "Paris"}\nso\n'


def test_held_back_until_whole() -> None:
    screen = Screen(stream=False)
    screen.output.event(TextDelta("a\x1b[1mb"))
    assert screen.text == ""
    screen.turn(TextDelta("a\x1b[1mb"))
    assert screen.text == "ab\n"


def test_the_numbers_follow_where_they_are_wanted() -> None:
    screen = Screen(show_stats=True)
    screen.turn(TextDelta("so"), reason="length")
    assert screen.text == (
        "so\n(stopped at the limit of max_tokens or of the context)\nprompt 3 (0 cached, 3 new) · ttft 0.00 s\n"
    )


def test_answers_apart() -> None:
    screen = Screen(blank_between=True)
    screen.turn(TextDelta("one"))
    screen.turn(TextDelta("two"))
    assert screen.text == "one\n\ntwo\n"


def test_a_failure_ends_the_line_that_it_broke_off() -> None:
    screen = Screen()
    result = follow(iter([TextDelta("half"), TurnFailed(EngineFailed("x"), "")]), screen.output)
    assert result.error
    screen.output.failed(result.error)
    assert screen.text == "half\n"


def test_following_what_never_ends_or_fails() -> None:
    screen = Screen()
    result = follow(iter([TextDelta("half")]), screen.output)
    assert isinstance(result.error, EngineFailed)
    assert result.message.text == "half"
    failed = follow(iter([TextDelta("ha"), TurnFailed(EngineFailed("x"), "half")]), screen.output)
    assert failed.message.text == "half"
