"""`mlxchat batch` as a program: killed, interrupted, run again; each request is answered exactly once."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mlxchat.cli import batch_run
from mlxchat.cli.batch_flags import BatchFlags
from mlxchat.errors import UsageError
from support.batches import answers, good, not_once, request, write
from support.process import Scripted, finished
from support.run_program import run_program
from support.schemas import validate
from support.scripted import model_folder

pytestmark = pytest.mark.plain

Make = Callable[..., Scripted]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("batch") / "model", "llama", "chatml")


@pytest.fixture
def make(model: Path, tmp_path: Path) -> Make:
    counts = itertools.count()

    def one() -> Scripted:
        program = Scripted(model, tmp_path / f"run{next(counts)}", "Yes, it is so.")
        program._fixed.remove("--no-save")
        return program

    return one


def test_killed_torn_and_run_again_each_request_is_answered_once(make: Make, tmp_path: Path) -> None:
    """kill -9 while three requests are under way, half a line left behind, then Ctrl-C, then to the end."""
    names = [f"r{n}" for n in range(7)]
    file = write(tmp_path / "requests.jsonl", [*map(request, names), request("bad", n=2), "no json"])
    out = tmp_path / "answers.jsonl"
    command = ("batch", str(file), "--out", str(out), "--parallel", "3", "--json")

    first = make()
    first.gate.hold("5.token.2")  # the first three run together, and are done
    process = first.start(*command)
    first.gate.wait_held()
    process.send_signal(signal.SIGKILL)
    assert finished(process).code == -signal.SIGKILL
    before = answers(out)
    assert 0 < len(good(before)) < 7
    with out.open("ab") as torn:
        torn.write(b'{"id": "batch_req_0123", "custom_id": "r6", "respo')

    second = make()
    second.gate.hold("2.token.2")
    process = second.start(*command)
    second.gate.wait_held()
    process.send_signal(signal.SIGINT)
    ended = finished(process)
    assert ended.code == 130
    stopped = validate(ended.json)["summary"]
    assert stopped["left"] > 0
    assert stopped["before"] == len(before)
    assert any("cut off" in line for line in validate(ended.json)["warnings"])

    third = make().run(*command)
    assert third.code == 3, third.err
    whole = validate(third.json)
    lines = answers(out)
    assert not_once(lines, names) == {}
    assert len(lines) == len(names) + 2
    assert lines[: len(before)] == before, "what was answered stays as it is"
    summary = whole["summary"]
    assert summary["answered"] + summary["failed"] + summary["before"] == 9
    assert (summary["left"], summary["failed"] + summary["failed_before"]) == (0, 2)
    assert not_once([*lines, lines[0]], names) != {} or not good([lines[0]]), "planted: a second answer is seen"


@pytest.mark.slow
def test_killed_again_and_again(make: Make, tmp_path: Path) -> None:
    names = [f"r{n}" for n in range(40)]
    file = write(tmp_path / "requests.jsonl", map(request, names))
    out = tmp_path / "answers.jsonl"
    command = ("batch", str(file), "--out", str(out), "--parallel", "4", "-q")
    chance = random.Random(9)
    kills = 0
    for _ in range(40):
        process = make().start(*command)
        had = len(answers(out)) if out.exists() else 0
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and out.read_bytes().count(b"\n") > had + chance.randrange(3):
                break
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        process.kill()
        killed = finished(process).code == -signal.SIGKILL
        kills += killed
        if not killed:
            break
    assert make().run(*command).code == 0
    assert kills >= 4
    assert not_once(answers(out), names) == {}


def test_people_get_lines_and_failed_requests_run_again(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    file = write(tmp_path / "requests.jsonl", [request("a", model="gpt-4o", user="me"), request("b", n=2)])
    ended = make().run("batch", str(file), "--out", str(out))
    assert (ended.code, ended.out) == (3, "")
    assert {tuple(line) for line in answers(out)} == {("id", "custom_id", "response", "error")}
    assert "1 answered · 1 failed of 2" in ended.err
    assert "failed: b: n is not supported" in ended.err
    assert "asked for the model gpt-4o; model answered" in ended.err
    assert "body.user has no meaning here" in ended.err

    again = make().run("batch", str(file), "--out", str(out))
    assert again.code == 3
    assert "--retry-errors" in again.err

    write(file, [request("a", model="gpt-4o"), request("b")])
    mended = make().run("batch", str(file), "--out", str(out), "--retry-errors", "--json")
    assert mended.code == 0, mended.err
    assert validate(mended.json)["summary"]["retried"] == 1
    assert not_once(answers(out), "ab") == {}
    assert len(answers(out)) == 2


FAILURES: list[tuple[list[str], int, str]] = [
    (["absent.jsonl", "--out", "o"], 66, "can't read absent.jsonl: No such file or directory"),
    (["empty.jsonl", "--out", "o"], 65, "no request"),
    (["r.jsonl", "--out", "r.jsonl"], 2, "another file"),
    (["r.jsonl", "--out", "no/such/o"], 74, "/no/such/o: there is no folder /"),
    (["r.jsonl", "--out", "r.jsonl/o"], 74, "/r.jsonl is no folder"),
    (["r.jsonl", "--out", "diary"], 65, "something else"),
    (["r.jsonl"], 2, "--out"),
    (["r.jsonl", "--out", "o", "-o", "x"], 2, "-o"),
    (["r.jsonl", "--out", "o", "-m", "nobody/has-this"], 69, "nobody/has-this"),
]


@pytest.mark.parametrize(("arguments", "code", "cause"), FAILURES, ids=lambda value: str(value)[:30])
def test_what_is_wrong_is_known_before_a_model_is_loaded(
    arguments: list[str], code: int, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "r.jsonl", [request("a")])
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "diary").write_text("Dear diary\n")
    ended = run_program("batch", *arguments, "--offline", "--json", fake=False)
    assert (ended.code, len(ended.error_lines)) == (code, 2), ended.err
    assert cause in ended.err
    assert validate(ended.json)["schema"] == "mlxchat.batch/1"


def test_a_full_disk_is_exit_code_74_and_keeps_what_is_done(make: Make, tmp_path: Path) -> None:
    file = write(tmp_path / "requests.jsonl", [request("a"), request("b"), request("c")])
    out = tmp_path / "answers.jsonl"
    limit = (
        "import errno, os\n"
        "from mlxchat.transcripts.answer_file import AnswerFile\n"
        "real = AnswerFile.append\n"
        "def append(self, value):\n"
        "    if self.standing.lines:\n"
        "        os.write = full\n"
        "    real(self, value)\n"
        "def full(*_):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "AnswerFile.append = append"
    )
    ended = finished(make().start("batch", str(file), "--out", str(out), "--json", "--parallel", "1", prelude=limit))
    assert ended.code == 74
    failed = validate(ended.json)
    assert (failed["error"]["code"], failed["summary"]["answered"]) == ("output", 1)
    assert len(ended.error_lines) == 2
    assert good(answers(out)) == ["a"]


def test_flags_that_mean_nothing_together() -> None:
    nan = {"temp": float("nan")}
    for more in ({"quiet": True, "verbose": 1}, {"offline": True, "yes": True}, nan):
        with pytest.raises(UsageError):
            BatchFlags("a", "b", **more).check()  # type: ignore[arg-type]
    BatchFlags("a", "b").check()


def test_the_bar_is_on_stderr_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    import io

    from mlxchat.cli.batch_progress import BatchProgress
    from mlxchat.cli.streams import Streams
    from mlxchat.transcripts.batch_tally import Tally
    from support.fake_tty import Tty

    out, terminal, pipe = io.StringIO(), Tty(), io.StringIO()
    for stream in (terminal, pipe):
        with BatchProgress(Streams("never", 0, out, stream), 10) as progress:
            progress.show(Tally(answered=3, failed=1, completion_tokens=50, wall_s=5.0))
            progress.note("b: a \x1b[2Jnotice")
    assert "4 of 10" in terminal.getvalue()
    assert "1 failed · 10.0 tok/s" in terminal.getvalue()
    assert pipe.getvalue() == "b: a notice\n"
    assert out.getvalue() == ""


@pytest.mark.parametrize("retry", [False, True])
def test_its_model_is_seen_to_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry: bool) -> None:
    seen: list[str] = []
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    monkeypatch.setattr(batch_run, "ensure_model", lambda name, **_: seen.append(name))
    monkeypatch.setattr(batch_run, "_answer", lambda *_: False)
    file = write(tmp_path / "requests.jsonl", [request("one")])
    flags = BatchFlags(str(file), str(tmp_path / "out.jsonl"), retry_errors=retry, model="other", quiet=True)
    assert batch_run.run_batch(flags) == 0
    assert seen == ["other"]
