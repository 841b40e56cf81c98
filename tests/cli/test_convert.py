"""`mlxchat convert`: what it writes where, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from mlxchat.transcripts.reading import read
from support.run_program import environment, run_program
from support.schemas import validate
from support.transcripts import FIXTURES, counts, fixture

pytestmark = pytest.mark.plain

STS = str(FIXTURES / "sts.jsonl")
HEAVY = ("mlx", "mlx_lm", "mlx_vlm", "transformers", "huggingface_hub", "numpy")

PAGE = """# Rivers

2 branches; this is the last of them.

## System

Be exact.

## User

Which river?

*(image: images/map.png)*

notes.txt:

```
Ulm
Wien
```

## Assistant (smollm2)

<details><summary>Reasoning</summary>

```
Look at the map.
```

</details>

Calls `map`:

```json
{
  "place": "Ulm"
}
```

Calls `map`:

```json
{
  "place": "Wien"
}
```

## Tool result (map)

```
Danube
```

## Tool result (map)

```
Danube
```

## Assistant

The Danube.

## User

How long?

## Assistant

*(reasoned; the transcript doesn't hold what)*

2,850 km.
"""


def test_the_suffix_says_the_format(tmp_path: Path) -> None:
    for name, format_name in (("a.jsonl", "openai"), ("a.json", "openai"), ("a.sts.jsonl", "sts")):
        done = run_program("convert", STS, str(tmp_path / name))
        assert (done.code, done.out) == (0, "")
        assert "read sts: 1 conversation, 9 messages, 4 requests, 2 tool calls" in done.error_lines
        assert f"wrote {tmp_path / name}" in done.error_lines
        assert counts(read(tmp_path / name)).format == format_name
        assert counts(read(tmp_path / name)).messages == 9
    assert stat.S_IMODE((tmp_path / "a.jsonl").stat().st_mode) == 0o600


def test_to_says_it_too_and_a_dash_is_stdout() -> None:
    done = run_program("convert", STS, "-", "--to", "markdown")
    assert done.code == 0
    assert done.out == PAGE


def test_bare_rows_are_plain_chat_messages() -> None:
    done = run_program("convert", STS, "-", "--to", "openai", "--bare")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 2
    assert "mlxchat" not in done.out
    assert [message["role"] for message in rows[0]["messages"]] == ["system", "user", "assistant"]
    call = rows[1]["messages"][2]["tool_calls"][0]
    assert call == {"id": "c1", "type": "function", "function": {"name": "map", "arguments": '{"place": "Ulm"}'}}


def test_json_says_what_was_done(tmp_path: Path) -> None:
    out = tmp_path / "out.md"
    report = validate(run_program("convert", str(FIXTURES / "claude"), str(out), "--json").json)
    assert (report["format"], report["to"], report["files"]) == ("claude-code", "markdown", [str(out)])
    assert (report["conversations"], report["messages"], report["requests"]) == (3, 12, 5)
    assert report["skipped"][0] == {"file": "5f2c.jsonl", "line": 4, "why": "an abandoned branch"}
    assert report["missing"] == ["system prompt", "tool schemas", "reasoning (encrypted)"]


def test_skipped_lines_are_named(tmp_path: Path) -> None:
    done = run_program("convert", str(FIXTURES / "claude"), str(tmp_path / "out.md"))
    assert "not in the transcript: system prompt, tool schemas, reasoning (encrypted)" in done.error_lines
    assert "skipped 4 lines" in done.error_lines
    assert "  5f2c.jsonl, line 4: an abandoned branch" in done.error_lines


def test_a_folder_gets_a_file_for_each_conversation(tmp_path: Path) -> None:
    done = run_program("convert", str(FIXTURES / "claude"), f"{tmp_path}/new/", "--to", "sts")
    assert done.code == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        *("5f2c-77ab.sts.jsonl", "5f2c-x1.sts.jsonl", "5f2c.sts.jsonl"),
    ]
    assert counts(read(tmp_path / "new")).messages == counts(fixture("claude")).messages


def test_a_name_can_not_leave_the_folder(tmp_path: Path) -> None:
    lines = '{"type": "session", "harness": "h", "id": "../../evil\\u0000/x"}\n'
    (tmp_path / "in.jsonl").write_text(lines + '{"type": "message", "message": {"role": "user", "content": "x"}}\n')
    assert run_program("convert", str(tmp_path / "in.jsonl"), f"{tmp_path}/new/", "--to", "sts").code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["evil-x.sts.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ([STS, "out.xyz"], 2, "out.xyz doesn't say what format it should have"),
        ([STS, "out.md", "--to", "word"], 2, "no output format is called 'word'"),
        ([STS, "-"], 2, "- doesn't say what format it should have"),
        ([STS, "-", "--to", "sts", "--json"], 2, "--json and OUT - both want stdout"),
        ([STS, "out.md", "--format", "word"], 2, "no transcript format is called 'word'"),
        ([STS, "there.md"], 2, "there.md is there already"),
        (["there.md", "there.md", "--force"], 2, "OUT is the same file as IN"),
        ([str(FIXTURES / "claude"), "out.sts.jsonl"], 2, "3 conversations don't fit into one session trace"),
        (["there.md", "out.md"], 65, "there.md, line 1: it is not JSON"),
        ([str(FIXTURES / "mooncake.jsonl"), "out.md"], 65, "holds no text, only lengths"),
        (["none.jsonl", "out.md"], 66, "can't read none.jsonl: No such file or directory"),
        ([STS, "no/such/folder/out.md"], 74, "can't write no/such/folder/out.md: there is no folder no/such/folder"),
    ],
)
def test_what_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.md").write_text("words\n")
    done = run_program("convert", *arguments)
    assert (done.code, done.out if "--json" not in arguments else "") == (code, "")
    assert why in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["there.md"]
    assert (tmp_path / "there.md").read_text() == "words\n"


def test_force_replaces(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("words\n")
    assert run_program("convert", STS, str(tmp_path / "a.md"), "--force").code == 0
    assert (tmp_path / "a.md").read_text().startswith("# Rivers")


def test_escape_sequences_reach_neither_page_nor_terminal(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a\x1b[31mred\x1b[0m <script>\x07"}, {"role": "\x1b[2J", "content": "x"}]
    row = {"messages": said}
    (tmp_path / "in.jsonl").write_text(json.dumps(row))
    done = run_program("convert", str(tmp_path / "in.jsonl"), "-", "--to", "markdown")
    assert "\x1b" not in done.out + done.err
    assert "a[31mred[0m <script>" in done.out


def test_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mlxchat", "convert", STS, "-", "--to", "sts"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=60)
    os.close(writer)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    source = (
        "import sys, json\n"
        "from mlxchat.cli.main import main\n"
        "try:\n"
        f"    main(['convert', {str(FIXTURES)!r}, {str(tmp_path / 'out.jsonl')!r}])\n"
        "except SystemExit as leaving:\n"
        "    assert not leaving.code, leaving.code\n"
        "print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment(), check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "mlxchat" in loaded
    assert not set(HEAVY) & set(loaded)
    assert (tmp_path / "out.jsonl").exists()
