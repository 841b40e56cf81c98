"""Bytes and JSON of any shape: a reader gives a transcript or one of mlxchat's own errors, never another."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.errors import MlxchatError
from mlxchat.transcripts.formats.registry import names
from mlxchat.transcripts.model import Transcript
from mlxchat.transcripts.reading import read
from mlxchat.transcripts.writing import OUTPUT_FORMATS, render
from support.transcripts import FIXTURES

pytestmark = pytest.mark.plain

FILES = sorted(path for path in FIXTURES.rglob("*") if path.is_file())
ODD: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        1e308,
        10**400,
        "",
        "x",
        "\ud800",
        "{",
        "[]",
        "attachment://x",
        [],
        {},
        [[]],
        [{}],
        {"": {}},
    ),
    *([{"type": 3}], {"role": "user"}, [{"role": "assistant", "content": 5}], "2026-01-01", ["x", None, {}]),
]
HEADS = [b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf", b"[", b"{"]
SLOW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tried(path: Path, data: bytes, format_name: str | None = None) -> Transcript | None:
    """Read `data`, and write what came of it in every format. Anything but our own error passes through."""
    path.write_bytes(data)
    try:
        transcript = read(path, format_name)
    except MlxchatError as error:
        if error.exit_code not in (2, 65, 66):
            raise AssertionError("not an error of reading") from error
        return None
    assert transcript.requests is not None
    for to in OUTPUT_FORMATS:
        try:
            "".join(render(transcript, to)).encode("utf-8", "replace")
        except MlxchatError:
            pass
    return transcript


@SLOW
@given(data=st.binary(max_size=300), name=st.sampled_from([None, *names()]))
def test_any_bytes(tmp_path: Path, data: bytes, name: str | None) -> None:
    tried(tmp_path / "t", data, name)


@SLOW
@given(
    head=st.sampled_from([b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf", b"[", b"{"]),
    data=st.binary(max_size=100),
)
def test_any_bytes_after_a_known_beginning(tmp_path: Path, head: bytes, data: bytes) -> None:
    tried(tmp_path / "t", head + data)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_a_file_with_any_of_its_bytes_changed(tmp_path: Path, file: Path) -> None:
    whole = file.read_bytes()
    dice = random.Random(file.name)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            data[at : at + dice.choice((0, 1, 1, 20))] = dice.randbytes(dice.randint(0, 3))
        tried(tmp_path / file.name, bytes(data))
    for _ in range(10):
        tried(tmp_path / file.name, whole[: dice.randrange(len(whole))])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, one in inner for found in places(one, (*path, name)))]


def with_odd(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """`value` with something else in one place."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_odd(value[path[0]], path[1:], odd)
    return copy


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_a_file_with_any_of_its_values_changed(tmp_path: Path, file: Path) -> None:
    """Every value of every fixture, replaced by something of another kind: each place at least once."""
    text = file.read_text(encoding="utf-8")
    lines = [text] if file.suffix in (".json", ".traj") else [line for line in text.splitlines() if is_json(line)]
    dice = random.Random(file.name)
    for at, line in enumerate(lines):
        value = json.loads(line)
        for place in places(value):
            changed = json.dumps(with_odd(value, place, dice.choice(ODD)))
            data = "\n".join([*lines[:at], changed, *lines[at + 1 :]]).encode("utf-8", "replace")
            tried(tmp_path / file.name, data, dice.choice((None, None, dice.choice(names()))))


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", names())
def test_every_file_read_as_every_format(tmp_path: Path, name: str) -> None:
    for file in FILES:
        tried(tmp_path / file.name, file.read_bytes(), name)


def test_a_fault_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlxchat.transcripts.formats import fields, gptme

    monkeypatch.setattr(gptme, "whole", lambda value: value + 1)
    data = (FIXTURES / "gptme.jsonl").read_bytes().replace(b'"cache_read_tokens": 64', b'"cache_read_tokens": null')
    assert fields.whole(None) is None
    with pytest.raises(TypeError):
        tried(tmp_path / "t.jsonl", data)
