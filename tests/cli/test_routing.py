"""The argv step: which command lines are a prompt, which a command, which a slip."""

from __future__ import annotations

import pytest
from mlxchat.cli import routing
from mlxchat.cli.app import build_app
from mlxchat.cli.routing import COMMANDS, letters_off, nearest_command, route
from mlxchat.errors import UsageError
from typer.main import get_command

pytestmark = pytest.mark.plain

TABLE = get_command(build_app()).option_table()  # type: ignore[attr-defined]

ROUTED = [
    ("", "chat"),
    ("hello", "chat hello"),
    ("hello|--json", "chat hello --json"),
    ("--json|hello", "chat --json hello"),
    ("what is this", "chat|what is this"),
    ("what|is|this", "chat|what|is|this"),
    ("can|you|help", "chat|can|you|help"),
    ("why", "chat why"),
    ("-", "chat -"),
    ("-f|-|hello", "chat -f - hello"),
    ("-m|models", "chat -m models"),
    ("-m|models|hello", "chat -m models hello"),
    ("--model|doctor|hello", "chat --model doctor hello"),
    ("--model=doctor|hello", "chat --model=doctor hello"),
    ("-mdoctor|hello", "chat -mdoctor hello"),
    ("-qm|doctor|hello", "chat -qm doctor hello"),
    ("-vv|hello", "chat -vv hello"),
    ("-o|stop=models|hello", "chat -o stop=models hello"),
    ("-s|replay|hello", "chat -s replay hello"),
    ("--think|models are nice", "chat|--think|models are nice"),
    ("--|models", "chat -- models"),
    ("--|--json", "chat -- --json"),
    ("--json|--|models|list", "chat --json -- models list"),
    ("models", "models"),
    ("models|list", "models list"),
    ("models|list|--json", "models list --json"),
    ("models|--help", "models --help"),
    ("doctor", "doctor"),
    ("replay|it|again", "replay it again"),
    ("sessions|list", "sessions list"),
    ("batch", "batch"),
    ("convert|a|b", "convert a b"),
    ("config|path", "config path"),
    ("chat|replay", "chat replay"),
    ("chat|modles", "chat modles"),
    ("-m|x|chat|models", "chat -m x models"),
    ("chat", "chat"),
    ("--help", "--help"),
    ("-h", "-h"),
    ("--show-completion", "--show-completion"),
    ("--version", "chat --version"),
    ("-q|--version", "chat -q --version"),
    ("hello|--help", "chat hello --help"),
    ("--|--help", "chat -- --help"),
    ("models!", "chat models!"),
    ("Models are nice.", "chat|Models are nice."),
    ("/help", "chat /help"),
    ("modèles", "chat modèles"),
    ("--turns|cache", "chat --turns cache"),
    ("--bogus|hello", "chat --bogus hello"),
]
REFUSED = [
    ("--json|cache|stat", "its options come after it", "mlxchat chat --json cache stat"),
    ("-m|x|models", "its options come after it", "mlxchat chat -m x models"),
    ("-m|x|replay", "its options come after it", "mlxchat chat -m x replay"),
    ("modles", "did you mean `models`?", "mlxchat chat modles"),
    ("Models", "did you mean `models`?", "mlxchat chat Models"),
    ("-q|docter", "did you mean `doctor`?", "mlxchat chat -q docter"),
    ("relpay|x y", "did you mean `replay`?", "mlxchat chat relpay 'x y'"),
    ("session", "did you mean `sessions`?", "mlxchat chat session"),
    ("caht|hello", "did you mean `chat`?", "mlxchat chat caht hello"),
    ("confg", "did you mean `config`?", "mlxchat chat confg"),
]


def split(line: str, by: str = "|") -> list[str]:
    return [part for part in line.split(by) if part]


@pytest.mark.parametrize(("line", "expected"), ROUTED)
def test_a_line_goes_where_it_should(line: str, expected: str) -> None:
    assert route(split(line), TABLE) == split(expected, "|" if "|" in expected else " ")


@pytest.mark.parametrize(("line", "cause", "forced"), REFUSED)
def test_a_line_is_refused_with_the_way_to_force_it(line: str, cause: str, forced: str) -> None:
    with pytest.raises(UsageError) as caught:
        route(split(line), TABLE)
    assert cause in caught.value.message
    assert caught.value.hint.endswith(forced)
    words = split(line)
    assert route(["chat", *words], TABLE) == ["chat", *words], "the forced line must be a prompt"


def test_the_table_is_long_enough() -> None:
    assert len(ROUTED) + len(REFUSED) >= 30


def test_a_long_line_is_not_repeated_in_full() -> None:
    with pytest.raises(UsageError) as caught:
        route(["modles", "word " * 40], TABLE)
    assert caught.value.hint.endswith("mlxchat chat …")


@pytest.mark.parametrize(
    ("one", "other", "off"),
    [
        ("models", "models", 0),
        ("model", "models", 1),
        ("modles", "models", 1),
        ("mdels", "models", 1),
        ("moddlse", "models", 2),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("ab", "ba", 1),
    ],
)
def test_letters_off(one: str, other: str, off: int) -> None:
    assert letters_off(one, other) == off == letters_off(other, one)


@pytest.mark.parametrize("word", ["what", "that", "can", "how", "who", "hi", "why", "list", "explain", "write", "2+2"])
def test_ordinary_first_words_are_no_slips(word: str) -> None:
    assert nearest_command(word) is None


def test_the_commands() -> None:
    assert set(COMMANDS) == {
        *("chat", "replay", "sessions", "models", "batch", "cache", "convert", "config", "doctor"),
    }


@pytest.mark.parametrize("fault", ["values forgotten", "reserved words forgotten"])
def test_planted_faults_show(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "values forgotten":
        table = routing.OptionTable(frozenset(), TABLE.program)
        with pytest.raises(UsageError):
            route(["-m", "models", "hello"], table)
    else:
        monkeypatch.setattr(routing, "COMMANDS", ("chat", "models", "doctor"))
        assert route(["replay"], TABLE) == ["chat", "replay"]
