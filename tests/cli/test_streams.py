"""Colour, quiet, and what a terminal gets that a pipe doesn't."""

from __future__ import annotations

import io
from typing import Any

import pytest
from mlxchat.cli.streams import ColorChoice, Streams, is_terminal, wants_color
from mlxchat.errors import OutputError
from support.fake_tty import Tty

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "wanted"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_who_decides_on_colour(choice: ColorChoice, terminal: bool, environment: dict[str, str], wanted: bool) -> None:
    assert wants_color(choice, Tty() if terminal else io.StringIO(), environment) is wanted


def made(stdout: Any = None, stderr: Any = None, **more: Any) -> tuple[Streams, Any, Any]:
    out, err = stdout or io.StringIO(), stderr or io.StringIO()
    return Streams(stdout=out, stderr=err, **more), out, err


def test_side_text_is_dim_where_colour_is() -> None:
    streams, out, err = made(stderr=Tty())
    streams.dim("[b]side[/b]")
    assert err.getvalue() == "\x1b[2m[b]side[/b]\x1b[0m"
    assert out.getvalue() == ""
    streams, _, err = made()
    streams.dim("side")
    assert err.getvalue() == "side"


def test_a_long_dim_line_is_not_broken() -> None:
    streams, _, err = made(stderr=Tty())
    streams.dim("word " * 100)
    assert "\n" not in err.getvalue()


def test_quiet_says_nothing() -> None:
    streams, _, err = made(stderr=Tty(), verbosity=-1)
    streams.note("a")
    streams.dim("b")
    streams.transient("c")
    streams.notice("d")
    assert err.getvalue() == ""


def test_transient_lines_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, _, err = made()
    streams.transient("working")
    assert err.getvalue() == ""
    streams, _, err = made(stderr=Tty())
    streams.transient("working")
    streams.notice("look")
    assert err.getvalue() == "\r\x1b[Kworking\r\x1b[Klook\n"
    monkeypatch.setenv("TERM", "dumb")
    streams, _, err = made(stderr=Tty())
    streams.transient("working")
    assert err.getvalue() == ""


def test_reasoning_is_for_two_terminals() -> None:
    assert made(Tty(), Tty())[0].shows_reasoning
    assert not made(io.StringIO(), Tty())[0].shows_reasoning
    assert not made(Tty(), io.StringIO())[0].shows_reasoning
    assert not made(Tty(), Tty(), verbosity=-1)[0].shows_reasoning


def test_a_stream_that_cannot_be_written_to() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(OutputError, match="No space left"):
        made(Full())[0].write("x")
    with pytest.raises(BrokenPipeError):
        made(Gone())[0].write("x")


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not is_terminal(stream)
    assert not is_terminal(None)


def test_a_note_breaks_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "words that are said at length"
    terminal, pipe = Tty(), io.StringIO()
    Streams(stderr=terminal).note(long)
    Streams(stderr=pipe).note(long)
    assert (terminal.getvalue(), pipe.getvalue()) == ("words that are said\nat length\n", f"{long}\n")
