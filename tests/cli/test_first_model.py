"""The first run: a choice of what is here and what is worth fetching, asked for once."""

from __future__ import annotations

import io
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat.cli import first_model
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.first_model import Choice, choose_first_model, first_choices
from mlxchat.cli.input_sources import Stdin
from mlxchat.cli.streams import Streams
from mlxchat.engine import recommended
from mlxchat.errors import DownloadError
from support.fake_tty import Tty
from support.model_folders import huggingface_snapshot, isolate, make_folder
from support.run_program import environment
from support.terminal import Terminal

pytestmark = pytest.mark.plain


class Keyboard(Stdin):
    is_open = True  # type: ignore[assignment]
    is_terminal = True  # type: ignore[assignment]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    huggingface_snapshot(tmp_path, "org/tiny", make_folder(tmp_path / "tiny"))
    monkeypatch.setattr(first_model, "ensure_model", lambda name, **_: None)
    return tmp_path


def type_in(monkeypatch: pytest.MonkeyPatch, *answers: str) -> Iterator[str]:
    given = iter(answers)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(given))
    return given


def choose(flags: ChatFlags, stderr: io.StringIO | None = None) -> tuple[ChatFlags, str]:
    err = stderr or Tty()
    return choose_first_model(flags, Keyboard(), Streams(stdout=io.StringIO(), stderr=err)), err.getvalue()


def test_the_choice_is_shown_asked_for_and_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = type_in(monkeypatch, "9", "no such", "2")
    flags, said = choose(ChatFlags())
    assert flags.model == "smollm2"
    assert next(left, None) is None
    assert "1  org/tiny" in said
    assert "a number from 1 to 2" in said
    assert tomllib.loads((home / "mlxchat" / "config.toml").read_text())["model"] == "smollm2"


def test_enter_takes_the_first_and_part_of_a_name_is_enough(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "1", "TINY")
    assert choose(ChatFlags())[0].model == "org/tiny"
    assert choose(ChatFlags())[0].model == "org/tiny"


def test_nobody_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch)
    for flags in (
        ChatFlags(model="x"),
        ChatFlags(defaults={"model": "x"}),
        ChatFlags(continue_last=True),
        ChatFlags(json=True),
    ):
        assert choose(flags) == (flags, "")
    assert choose(ChatFlags(), io.StringIO()) == (ChatFlags(), ""), "off a terminal"
    monkeypatch.setattr(first_model, "first_choices", lambda offline: [Choice("smollm2", "")])
    assert choose(ChatFlags()) == (ChatFlags(), ""), "nothing to choose from"
    monkeypatch.setattr(first_model, "_default_is_here", lambda: True)
    assert choose(ChatFlags()) == (ChatFlags(), ""), "the demo was pulled, and is what runs"


def test_a_declined_download_is_not_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def declined(name: str, **_: object) -> None:
        raise DownloadError("declined", "")

    type_in(monkeypatch, "2")
    monkeypatch.setattr(first_model, "ensure_model", declined)
    with pytest.raises(DownloadError):
        choose(ChatFlags())
    assert not (home / "mlxchat" / "config.toml").exists()


def test_what_is_worth_fetching_is_among_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommended, "recommended", lambda memory: "org/good")
    assert [choice.name for choice in first_choices(offline=False)] == ["org/tiny", "org/good", "smollm2"]
    assert [choice.name for choice in first_choices(offline=True)] == ["org/tiny"]


def test_at_a_terminal(home: Path) -> None:
    places = {"HOME": str(home), "MLXCHAT_HOME": str(home / "mlxchat")}
    with Terminal(["-m", "mlxchat"], environment(places)) as terminal:
        terminal.wait_for("1  org/tiny")
        terminal.wait_for(r"which one \[1\]:")
        terminal.line("2")
        terminal.wait_for("Download SmolLM2")
        terminal.line("n")
        assert terminal.wait_for_exit() == DownloadError.exit_code
    assert not (home / "mlxchat" / "config.toml").exists()
