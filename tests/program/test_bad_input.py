"""Input that can't be used: one line of cause, one of help, the exit code, and nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.process import Scripted
from support.run_program import Ended
from support.schemas import validate
from support.scripted import model_folder

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("bad") / "model", "llama", "chatml", max_position_embeddings=64)


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Scripted:
    made = Scripted(model, tmp_path / "run", "One.")
    (made.work / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (made.work / "long.txt").write_text("hello world " * 100)
    (made.work / "refuses.jinja").write_text("{{ raise_exception('no such role here') }}")
    (made.work / "broken.jinja").write_text("{% for %}")
    return made


def explained(ended: Ended, code: int, cause: str) -> None:
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert len(ended.error_lines) == 2, ended.err
    assert ended.error_lines[0].startswith("mlxchat: ")
    assert cause in ended.error_lines[0]
    assert ended.error_lines[1].strip()


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("x", "-f", "latin.txt"), 65, "not UTF-8"),
        (("--turns", "latin.txt"), 65, "not UTF-8"),
        (("-f", "long.txt"), 65, "the model's context is 64"),
        (("x", "--template", "refuses.jinja"), 65, "no such role here"),
        (("x", "--template", "broken.jinja"), 65, "broken.jinja"),
        (("x", "--template", "absent.jinja"), 66, "absent.jinja"),
        (("x", "-f", "absent.txt"), 66, "absent.txt"),
        ((" ",), 2, "empty"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_bad_input(run: Scripted, arguments: tuple[str, ...], code: int, cause: str) -> None:
    explained(run.run(*arguments), code, cause)


@pytest.mark.parametrize(
    ("name", "cause"),
    [("nobody/here", "not on this machine"), ("/absent/model", "/absent/model"), ("nosuch", "nosuch")],
)
def test_a_missing_model(tmp_path: Path, name: str, cause: str) -> None:
    explained(Scripted(Path(name), tmp_path / "run").run("x"), 69, cause)


def test_a_failure_is_json_too(run: Scripted) -> None:
    ended = run.run("-f", "long.txt", "--json")
    assert ended.code == 65
    assert validate(ended.json)["error"]["code"] == "context_exceeded"
    assert "/" not in ended.json["error"]["hint"], "there are no slash commands here"


def test_a_turn_that_fits_is_answered_before_one_that_does_not(run: Scripted) -> None:
    """What was answered is not lost with what can't be."""
    (run.work / "turns.txt").write_text("hello\n" + "hello world " * 100 + "\n")
    ended = run.run("--turns", "turns.txt")
    assert (ended.code, ended.out) == (65, "One.\n")
    assert len(ended.error_lines) == 2
