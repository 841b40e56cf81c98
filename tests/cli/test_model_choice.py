"""Nothing is downloaded unasked."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from mlxchat.cli.input_sources import Stdin
from mlxchat.cli.model_choice import ask_by_key, ensure_model
from mlxchat.cli.streams import Streams
from mlxchat.errors import DownloadError
from support.fake_tty import Tty

pytestmark = pytest.mark.plain

QUESTION = "Download smollm2, 98 MB?"


class Somewhere(Stdin):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def is_open(self) -> bool:
        return True

    @property
    def is_terminal(self) -> bool:
        return self._terminal


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool | None]:
    """What the engine was answered when it asked; None where it could ask nobody."""
    given: list[bool | None] = []

    def ensure(name: str, *, offline: bool, confirm: Callable[[str], bool] | None, progress: Any) -> None:
        given.append(confirm(QUESTION) if confirm else None)
        if not given[-1]:
            raise DownloadError("smollm2 is not here", "mlxchat models pull smollm2")

    monkeypatch.setattr("mlxchat.engine.models.ensure", ensure)
    return given


def choose(yes: bool, terminal: bool) -> str:
    err = Tty() if terminal else io.StringIO()
    streams = Streams(stdout=io.StringIO(), stderr=err)
    ensure_model("smollm2", offline=False, yes=yes, streams=streams, stdin=Somewhere(terminal))
    return err.getvalue()


def test_yes_is_consent_and_the_size_is_shown(answers: list[bool | None]) -> None:
    assert QUESTION in choose(yes=True, terminal=False)
    assert answers == [True]


def test_off_a_terminal_it_is_refused(answers: list[bool | None]) -> None:
    with pytest.raises(DownloadError):
        choose(yes=False, terminal=False)
    assert answers == [None]


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_the_user_is_asked(
    answers: list[bool | None], answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def confirm(question: str, err: bool) -> bool:
        assert err, "stdout is for the answer"
        asked.append(question)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    if answer:
        choose(yes=False, terminal=True)
    else:
        with pytest.raises(DownloadError):
            choose(yes=False, terminal=True)
    assert asked == [QUESTION]
    assert answers == [answer]


@pytest.mark.parametrize(
    ("pressed", "agreed"), [("y", True), ("\r\0Y", True), ("n", False), ("\x03", False), ("x\x1b", False), ("", False)]
)
def test_within_a_conversation_one_key_is_the_answer(pressed: str, agreed: bool) -> None:
    keys, err = iter([*pressed, ""]), io.StringIO()
    streams = Streams(stdout=io.StringIO(), stderr=err)
    assert ask_by_key(QUESTION, streams, lambda stopped: nullcontext(lambda: next(keys))) is agreed
    assert err.getvalue() == f"{QUESTION} [y]es, [n]o? {'yes' if agreed else 'no'}\n"
