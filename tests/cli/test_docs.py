"""What the docs list is what the program has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlxchat import errors
from mlxchat.cli.failures import UnexpectedError
from mlxchat.cli.repl import Repl
from mlxchat.cli.repl_commands import ALIASES, ARGUMENTS, COMMANDS
from mlxchat.cli.stats_line import REASONS
from mlxchat.engine.stats import RequestStats
from mlxchat.errors import CacheTrouble, MlxchatError
from support.config_page import table
from support.modules_page import page

pytestmark = pytest.mark.plain

DOCS = Path(__file__).resolve().parents[2] / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def exceptions() -> Iterator[type[MlxchatError]]:
    """Every class that can reach the user."""
    for found in [*vars(errors).values(), UnexpectedError]:
        if isinstance(found, type) and issubclass(found, MlxchatError) and found is not CacheTrouble:
            yield found


@pytest.mark.parametrize("error", list(exceptions()), ids=lambda error: error.__name__)
def test_every_exit_code_is_listed_with_its_names(error: type[MlxchatError]) -> None:
    [row] = [line for line in text_of("exit-codes.md").splitlines() if line.startswith(f"| {error.exit_code} |")]
    assert f"`{error.code}`" in row


def test_every_reason_is_explained() -> None:
    text = text_of("troubleshooting.md")
    assert all(f"`{words}`" in text for words in REASONS.values() if words)


def test_every_setting_is_explained() -> None:
    assert table() in text_of("config.md"), "run: python tests/support/config_page.py, and put it into docs/config.md"


def test_every_module_is_listed_in_its_own_words() -> None:
    assert page() == text_of("modules.md"), "run: python tests/support/modules_page.py > docs/modules.md"


def test_every_number_is_explained() -> None:
    text = text_of("json.md")
    assert [name for name in RequestStats().to_json() if not re.search(rf"\b{name}\b", text)] == []


def documented() -> set[str]:
    """Every command that stands in the table of chat.md."""
    rows = [line.split(" | ")[0] for line in text_of("chat.md").splitlines() if line.startswith("| `/")]
    return {word for row in rows for word in re.findall(r"(?<=`)/[a-z]+", row)}


def test_every_command_of_a_conversation_is_documented_and_none_besides() -> None:
    assert documented() == {*COMMANDS, *ALIASES}


@pytest.mark.parametrize("name", sorted({*ARGUMENTS} - {"/tools", "/mcp"}))  # tools.md has a table of those
def test_what_stands_after_a_command_is_documented(name: str) -> None:
    words = ARGUMENTS[name].replace("|", r"\|")
    assert f"`{name} {words}`" in text_of("chat.md")


def test_every_command_does_something() -> None:
    """The table of commands is what the prompt obeys; /exit is the prompt's own."""
    nothing: Any = SimpleNamespace(keep=None, rename=None, search=None, choose_markdown=None)
    commands = Repl(nothing, nothing, nothing, nothing, nothing, nothing, nothing).commands
    assert {*commands, "/exit"} == set(COMMANDS)
