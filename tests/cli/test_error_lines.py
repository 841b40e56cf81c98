"""One style for every line of cause and of help: lower case, no full stop, one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlxchat import errors
from mlxchat.cli.failures import as_mlxchat_error
from mlxchat.errors import MlxchatError
from support.run_program import run_program

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("cli", "transcripts", "engine", "cache")
CLASSES = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, MlxchatError)}
CAPITALS = re.compile(r"(?:[A-Z][A-Z_]+|JSON\w*)\b")
"""Names that are written so: MLXCHAT_BLAS, OUT, GGUF, JSON."""


def lines_of(source: str) -> Iterator[tuple[int, str]]:
    """(line number, words) of every cause and help that is written out where one of our exceptions is made."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in CLASSES:
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)][:2]:
                words = literal(argument)
                if words is not None:
                    yield argument.lineno, words


def literal(node: ast.expr) -> str | None:
    """The words of a string or an f-string, what it fills in as `…`; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def faults(source: str) -> list[tuple[int, str]]:
    return [
        (line, words)
        for line, words in lines_of(source)
        if (words[:1].isupper() and not CAPITALS.match(words)) or re.search(r"[^.]\.$|\n", words)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_every_error_is_written_in_one_style(room: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": words
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, words in faults(path.read_text(encoding="utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        'raise UsageError("No such thing", "look again")',
        'raise InputError(f"can\'t read {name}.", "look again")',
        'raise errors.DataError("no", "Save it")',
    ],
)
def test_another_style_would_be_seen(source: str) -> None:
    assert len(faults(source)) == 1


def test_there_are_many() -> None:
    assert sum(1 for room in ROOMS for path in (ROOT / room).rglob("*.py") for _ in lines_of(path.read_text())) > 200


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["sessions", "export", "x", "--format", "foo"], "'--format': 'foo' is not one of 'openai', 'sts', 'markdown'"),
        (["hello", "--color", "foo"], "'--color': 'foo' is not one of 'auto', 'always', 'never'"),
        (["hello", "--temp", "warm"], "'--temp': input should be a valid number, unable to parse string as a number"),
        (["hello", "--top-k", "-1"], "'--top-k': input should be greater than or equal to 0"),
        (["-m", "", "hello"], "-m takes the name of a model"),
        (["-m", " ", "hello"], "-m takes the name of a model"),
    ],
)
def test_what_the_parser_refuses(arguments: list[str], line: str) -> None:
    ended = run_program(*arguments)
    assert ended.code == 2
    prefix = "" if line.startswith("-m") else "invalid value for "
    assert ended.error_lines[0] == f"mlxchat: {prefix}{line}"


def test_an_error_that_is_ours_stays_as_it_is() -> None:
    error = errors.DataError("no", "yes")
    assert as_mlxchat_error(error) is error


def test_what_ctrl_c_was_turned_into_is_ctrl_c() -> None:
    error = RuntimeError("Error calling __set_name__ on 'Field' instance")
    error.__cause__ = KeyboardInterrupt()
    assert as_mlxchat_error(error).code == "interrupted"
