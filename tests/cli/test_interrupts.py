"""Ctrl-C without a terminal: the partial answer is kept, and the exit code says 130."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli.interrupts import stopping, unheard
from mlxchat.cli.line_reader import LineReader
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from support.fake_engine import FakeChat, FakeEngine
from support.run_program import PATIENCE_S, Ended, command, environment
from support.schemas import validate

pytestmark = pytest.mark.plain


@pytest.fixture
def chat() -> FakeChat:
    return FakeChat(FakeEngine())


def interrupted(*arguments: str, stdin: bytes = b"", told: bytes) -> Ended:
    """Run the program, send SIGINT when stderr says `told`, and let it end."""
    with subprocess.Popen(
        command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        first = process.stderr.readline()
        assert told in first
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out.decode(), err.decode())


def test_one_shot_keeps_the_partial_answer() -> None:
    assert interrupted("hang partial", told=b"hanging") == Ended(130, "partial\n", "")


def test_one_shot_json() -> None:
    done = interrupted("hang partial", "--json", told=b"hanging")
    value = validate(done.json)
    assert done.code == 130
    assert (value["text"], value["finish_reason"]) == ("partial", "interrupted")


def test_nothing_said_yet() -> None:
    done = interrupted("hang silently", "--json", told=b"hanging")
    assert done.code == 130
    assert validate(done.json)["text"] == ""


def test_one_shot_jsonl() -> None:
    done = interrupted("hang partial", "--jsonl", told=b"hanging")
    events = [validate(event) for event in done.lines]
    assert events[-2]["finish_reason"] == "interrupted"
    assert (events[-1]["type"], events[-1]["exit_code"]) == ("done", 130)


def test_turns_end_with_what_they_have() -> None:
    done = interrupted("--turns", "-", "--json", stdin=b"say one\nhang two\nsay three\n", told=b"hanging")
    value = validate(done.json)
    assert done.code == 130
    assert [turn["text"] for turn in value["turns"]] == ["one", "two"]
    assert [turn["finish_reason"] for turn in value["turns"]] == ["stop", "interrupted"]


def test_while_waiting_for_stdin() -> None:
    with subprocess.Popen(
        command("hello", "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"--no-stdin" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait(PATIENCE_S) == 130
    assert b'"interrupted"' in out
    assert err == b""


def test_the_first_stops_and_the_second_leaves(chat: FakeChat) -> None:
    times = iter([10.0, 10.1, 10.5])
    with stopping(chat, clock=lambda: next(times)):  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
        assert chat.stops == 1
        signal.raise_signal(signal.SIGINT)  # the same press, once more
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_in_a_conversation_every_one_only_stops(chat: FakeChat) -> None:
    with stopping(chat, leave_on_second=False):  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert chat.stops == 2


def test_the_handler_before_comes_back(chat: FakeChat) -> None:
    def events() -> Iterator[None]:
        with stopping(chat):  # type: ignore[arg-type]
            yield

    before = signal.getsignal(signal.SIGINT)
    assert list(events()) == [None]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_breaks_off_no_prompt_that_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    steps: list[str] = []

    def prompt(*_: object, **__: object) -> str:
        signal.raise_signal(signal.SIGINT)
        steps.append("taken down")
        return "hello"

    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        reader = LineReader(color=False)
        monkeypatch.setattr(reader._session, "prompt", prompt)
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            reader.read()
    assert steps == ["taken down"]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_the_prompt_is_set_up_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        reader = LineReader(color=False)
        asked = reader._session.prompt

        def prompt(*arguments: Any, **more: Any) -> str:
            signal.raise_signal(signal.SIGINT)
            steps.append("set up")
            return asked(*arguments, **more)

        steps: list[str] = []
        monkeypatch.setattr(reader._session, "prompt", prompt)
        with pytest.raises(KeyboardInterrupt):
            reader.read()
    assert steps == ["set up"]


def test_a_press_that_comes_twice_breaks_off_nothing_that_must_be_written() -> None:
    written: list[str] = []
    with unheard():
        signal.raise_signal(signal.SIGINT)
        written.append("JSON")
    assert written == ["JSON"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
