"""`--schema`: typed out or in a file, and refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.schema_flag import schema_text
from mlxchat.errors import InputError, UsageError
from support.run_program import run_program

pytestmark = pytest.mark.plain


def test_a_file_or_the_schema_itself(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"type": "integer"}')
    assert schema_text(str(file)) == '{"type": "integer"}'
    assert schema_text('{"type": "integer"}') == '{"type": "integer"}'
    assert schema_text(None) is None
    assert ChatFlags(schema=str(file)).request_options().schema == '{"type": "integer"}'
    with pytest.raises(InputError):
        schema_text(str(tmp_path / "absent"))
    with pytest.raises(UsageError):
        schema_text(" ")


def test_one_line_of_cause_one_of_help_and_exit_code_2() -> None:
    done = run_program("hello", "--schema", '{"enum": []}')
    assert done.code == 2
    assert len(done.error_lines) == 2
    assert "--schema can't be used" in done.error_lines[0]
    assert done.out == ""
