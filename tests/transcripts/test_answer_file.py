"""The file of answers: whole lines whatever happens, one writer, never a file that is something else."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlxchat.errors import DataError, OutputError
from mlxchat.transcripts import answer_file
from mlxchat.transcripts.answer_file import AnswerFile
from mlxchat.transcripts.batch_lines import BatchLine, LineFault
from mlxchat.transcripts.batch_tally import Tally
from mlxchat.transcripts.standing import Standing
from support.batches import answers, request, scanned, write

pytestmark = pytest.mark.plain


def line(name: str, status: int | None = 200) -> dict[str, Any]:
    response = None if status is None else {"status_code": status, "request_id": "r", "body": {"text": f"é {name}"}}
    return {"id": f"batch_req_{name}", "custom_id": name, "response": response, "error": None}


ASKED = [
    *(BatchLine(at, 0, f"batch_req_{name}", name) for at, name in enumerate("abd", 1)),
    BatchLine(4, 0, "batch_req_c", "a", LineFault("duplicate_custom_id", "")),
]


def filled(path: Path, *values: dict[str, Any]) -> Path:
    file = AnswerFile(path)
    for value in values:
        file.append(value)
    file.close()
    return path


def standing(path: Path) -> Standing:
    file = AnswerFile(path)
    file.close()
    return file.standing


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    path = filled(tmp_path / "out", line("a"), line("b", 400), line("c", None))
    found = standing(path)
    assert found.requests == {"a": "batch_req_a", "b": "batch_req_b"}
    assert found.lines == {"batch_req_a", "batch_req_b", "batch_req_c"}
    assert found.failed == {"batch_req_b", "batch_req_c"}
    filled(path, line("d"))
    assert [value["custom_id"] for value in answers(path)] == ["a", "b", "c", "d"]


def test_a_line_cut_off_at_any_byte_goes_and_no_other(tmp_path: Path) -> None:
    path = filled(tmp_path / "out", line("a"), line("b"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        found = standing(path)
        assert (list(found.requests), found.trimmed) == (["a"], end - first)
        assert path.read_bytes() == whole[:first]
        filled(path, line("b"))
        assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"id": "batch_req_b", "custom\0\0\0', b'{"id": "batch_req_b", "cus\n'])
def test_what_a_power_cut_may_leave_goes_too(tail: bytes, tmp_path: Path) -> None:
    path = filled(tmp_path / "out", line("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert standing(path).trimmed == len(tail)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content", [b"my diary", b"my diary\n", b'{"id": 3}\n', b'{"a": 1}', b"[]\n", b'{"id": "x", "cut', b"\xff\n"]
)
def test_a_file_that_is_something_else_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(content)
    with pytest.raises(DataError):
        AnswerFile(path)
    assert path.read_bytes() == content
    damaged = filled(tmp_path / "other", line("a"), line("b")).read_bytes().replace(b'"a"', b'"a', 1)
    path.write_bytes(damaged)
    with pytest.raises(DataError):  # in the middle nothing is ever cut off
        AnswerFile(path)


def test_two_programs_can_not_write_one_file(tmp_path: Path) -> None:
    first = AnswerFile(tmp_path / "out")
    with pytest.raises(OutputError, match="another program"):
        AnswerFile(tmp_path / "out")
    first.append(line("a", 500))
    first.drop_failed(ASKED)
    with pytest.raises(OutputError, match="another program"):
        AnswerFile(tmp_path / "out")
    first.close()
    standing(tmp_path / "out")


def test_failed_lines_are_taken_out_at_once(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    file = AnswerFile(tmp_path / "link")
    for value in (line("a"), line("b", 500), line("c", None), line("d"), line("elsewhere", 500)):
        file.append(value)
    assert file.drop_failed(ASKED) == 2
    assert file.drop_failed(ASKED) == 0
    file.append(line("b"))
    file.close()
    assert [value["custom_id"] for value in answers(tmp_path / "real")] == ["a", "d", "elsewhere", "b"]
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


LEFT = ".out.3.new"
KILLED = """
import os, signal, sys
from pathlib import Path
from mlxchat.transcripts.answer_file import AnswerFile
from mlxchat.transcripts.batch_lines import BatchLine

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
AnswerFile(Path(sys.argv[1])).drop_failed([BatchLine(1, 0, "batch_req_b", "b")])
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_program_left_of_a_copy_goes_at_the_next_start(tmp_path: Path) -> None:
    path = filled(tmp_path / "out [1]", line("a"), line("b", 500))
    whole = path.read_bytes()
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    filled(path)
    assert names(tmp_path) == [path.name]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"\0" * 40, json.dumps(line("a")).encode()[:30]])
def test_so_does_one_that_was_cut_off(content: bytes, tmp_path: Path) -> None:
    (tmp_path / LEFT).write_bytes(content)
    filled(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_a_copy_that_is_being_made_stays(tmp_path: Path) -> None:
    """Whoever makes it holds the lock."""
    file = AnswerFile(tmp_path / "out")
    (tmp_path / LEFT).write_bytes(b"")
    with pytest.raises(OutputError, match="another program"):
        AnswerFile(tmp_path / "out")
    file.close()
    assert names(tmp_path) == [LEFT, "out"]


def test_where_nothing_can_be_locked_a_copy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(answer_file.fcntl, "flock", no_locks)
    (tmp_path / LEFT).write_bytes(b"")
    filled(tmp_path / "out")
    assert names(tmp_path) == [LEFT, "out"]


def test_what_is_only_called_like_a_copy_stays(tmp_path: Path) -> None:
    (tmp_path / LEFT).write_text("my diary\n")
    (tmp_path / ".out.4.new").mkdir()
    (tmp_path / ".out.5.new").symlink_to("out")
    os.mkfifo(tmp_path / ".out.6.new")
    for name in (".out.old.new", ".out.7.newer", ".outer.7.new", "out.7.new"):
        (tmp_path / name).touch()
    before = names(tmp_path)
    filled(tmp_path / "out", line("a"))
    assert names(tmp_path) == sorted([*before, "out"])


def test_a_copy_goes_whatever_ends_its_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    file = AnswerFile(tmp_path / "out")
    file.append(line("b", 500))
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.drop_failed(ASKED)
    file.close()
    assert names(tmp_path) == ["out"]


def test_a_full_disk_costs_the_line_and_nothing_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AnswerFile(tmp_path / "out")
    file.append(line("a"))
    real = os.write

    def fills_up(descriptor: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:20])

    monkeypatch.setattr(answer_file.os, "write", fills_up)
    with pytest.raises(OutputError, match="No space left") as caught:
        file.append(line("b"))
    assert "make room" in caught.value.hint
    monkeypatch.undo()
    assert [value["custom_id"] for value in answers(tmp_path / "out")] == ["a"]
    file.append(line("b"))
    file.close()
    assert [value["custom_id"] for value in answers(tmp_path / "out")] == ["a", "b"]


@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_is_taken_away_is_noticed_at_the_next_answer(again: bool, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    file = AnswerFile(path)
    file.append(line("a"))
    path.unlink()
    if again:
        path.write_text("")
    with pytest.raises(OutputError, match="deleted or replaced"):
        file.append(line("b"))
    file.close()


def test_a_file_that_is_moved_takes_its_answers_along(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    file = AnswerFile(path)
    path.rename(tmp_path / "moved.jsonl")
    file.append(line("a"))
    file.close()
    assert standing(tmp_path / "moved.jsonl").requests == {"a": "batch_req_a"}


def test_an_answer_is_on_the_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(answer_file.os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd))[1])
    file = AnswerFile(tmp_path / "out")
    synced.clear()
    for name in "abc":
        file.append(line(name))
        assert synced[-1] == (tmp_path / "out").stat().st_size
    assert len(synced) == 3
    file.close()


def test_what_can_not_be_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "no" / "out", tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OutputError):
            AnswerFile(path)


def test_what_is_pending(tmp_path: Path) -> None:
    lines = scanned(write(tmp_path / "r", [request("a"), request("b", "new words"), "x", request("c"), request("c")]))
    old = scanned(write(tmp_path / "old", [request("b")]))[0]
    file = AnswerFile(tmp_path / "out")
    for one, status in ((lines[0], 200), (old, 200), (lines[2], None), (lines[4], None)):
        name = one.custom_id
        file.append({**line("x", status), "id": one.id, "custom_id": name})
    tally = Tally()
    assert [one.number for one in tally.pending(lines, file.standing)] == [4]
    assert (tally.before, tally.failed_before, tally.changed) == (4, 2, 1)
    file.close()


def test_planted_a_standing_that_forgets_would_answer_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = scanned(write(tmp_path / "r", [request("a")]))
    filled(tmp_path / "out", {**line("a"), "id": lines[0].id})
    assert Tally().pending(lines, standing(tmp_path / "out")) == []
    monkeypatch.setattr(Standing, "add", lambda self, value: None)
    assert Tally().pending(lines, standing(tmp_path / "out")) == lines


def test_lines_of_any_text_are_whole(tmp_path: Path) -> None:
    odd = {**line("a"), "custom_id": "\ud800 \u2028 \x00"}
    filled(tmp_path / "out", odd)
    assert json.loads((tmp_path / "out").read_bytes().split(b"\n")[0])["custom_id"] == odd["custom_id"]
    assert len(standing(tmp_path / "out").requests) == 1
