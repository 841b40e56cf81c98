"""The scripted chat's file."""

from __future__ import annotations

import pytest
from mlxchat.cli.turns_file import parse_turns
from mlxchat.errors import DataError, UsageError

pytestmark = pytest.mark.plain


def texts(text: str, name: str = "turns.txt") -> list[str]:
    messages = parse_turns(text, name)
    assert all(message.role == "user" for message in messages)
    return [message.text for message in messages]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("\n one \n\n\ntwo", ["one", "two"]),
        ('{"role": "user", "content": "a\\nb"}\n{"content": "c"}\n', ["a\nb", "c"]),
        ('"one"\n"two\\nlines"\n', ["one", "two\nlines"]),
        ('{"content": "one"}\n"two"\n', ["one", "two"]),
        ('{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}', ["a\nb"]),
        ('"Hello" is a greeting\nso is "hi"', ['"Hello" is a greeting', 'so is "hi"']),
        ("[1, 2]\n3", ["[1, 2]", "3"]),
        ('{"content": "half \\ud83d"}', ["half \ufffd"]),
        ("line\u2028separator\x0cfeed", ["line\u2028separator\x0cfeed"]),
    ],
)
def test_the_messages_of_a_file(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"content": "a"}\nnot json', "line 2 is not JSON"),
        ('{"role": "assistant", "content": "a"}', "line 1 has the role 'assistant'"),
        ('{"content": ""}', "line 1 is an empty message"),
        ('{"content": "a"}\n{"text": "b"}', "line 2 is no user message"),
        ('{"content": ' + "[" * 100_000, "line 1 is not JSON"),
        ('{"content": 3}', "line 1 is no user message"),
        ('{"content": "a"}\n3', "line 2 is no user message"),
    ],
)
def test_a_bad_line_is_named(text: str, cause: str) -> None:
    with pytest.raises(DataError, match=cause):
        texts(text)


def test_the_name_can_make_it_jsonl() -> None:
    with pytest.raises(DataError, match="line 1 is not JSON"):
        texts("hello", "turns.jsonl")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_a_message(text: str) -> None:
    with pytest.raises(UsageError, match="holds no message"):
        texts(text)
