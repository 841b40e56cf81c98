"""The program in its own process: streams, exit codes, two lines per error."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.run_program import PATIENCE_S, Ended, command, environment, run_program

pytestmark = pytest.mark.plain


def test_the_answer_and_nothing_else_is_on_stdout() -> None:
    assert run_program("say hello") == Ended(0, "hello\n", "")


def test_reasoning_stays_out_of_a_pipe() -> None:
    assert run_program("think hello") == Ended(0, "hello\n", "")


def test_options_go_before_and_after_the_prompt() -> None:
    assert run_program("--temp", "0", "say", "hello", "--seed", "1").out == "hello\n"
    assert run_program("--", "--json").out == "You said: --json\n"


def test_piped_text_follows_the_prompt() -> None:
    assert run_program("explain", stdin=b"piped").out == "You said: explain\n\npiped\n"
    assert run_program("explain", "--no-stdin", stdin=b"piped").out == "You said: explain\n"
    assert run_program("-", stdin=b"say piped").out == "piped\n"


def test_a_file_goes_along(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("in a file", encoding="utf-8")
    out = run_program("sum up", "-f", str(tmp_path / "a.txt"), "-f", "-", stdin=b"in a pipe").out
    assert out.index("in a file") < out.index("in a pipe") < out.index("sum up")
    assert run_program("-f", str(tmp_path / "a.txt")).code == 0, "a file alone can be a prompt"


def test_turns_are_answered_one_after_another() -> None:
    assert run_program("--turns", "-", stdin=b"say a\nsay b\n").out == "a\n\nb\n"


def test_no_stream_prints_the_same() -> None:
    assert run_program("think hello", "--no-stream").out == "hello\n"
    assert run_program("--turns", "-", "--no-stream", stdin=b"say a\nsay b\n").out == "a\n\nb\n"


def test_escape_sequences_never_get_out() -> None:
    assert run_program("say a\x1b[2J\x1b]0;title\x07b").out == "ab\n"
    assert "\x1b" not in run_program("notice \x1b[31mred").err


def test_more_and_less_on_stderr() -> None:
    verbose = run_program("say a", "-v")
    assert verbose.out == "a\n"
    assert "loaded fake in" in verbose.err
    assert "prompt 4,210 (4,096 cached, 114 new)" in verbose.err
    assert run_program("say a", "-m", "loud").err == "the fake engine is loud\n"
    assert run_program("say a", "-m", "loud", "-q").err == ""


def test_the_limit_is_mentioned() -> None:
    done = run_program("say cut off …")
    assert done.code == 0
    assert "max_tokens" in done.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "cause"),
    [
        ([""], b"", 2, "the prompt is empty"),
        ([], b"", 2, "the prompt is empty"),
        ([], b" \n", 2, "the prompt is empty"),
        (["-"], b"", 2, "the prompt is empty"),
        (["--no-stdin"], b"x", 2, "the prompt is empty"),
        (["-", "-f", "-"], b"x", 2, "both want stdin"),
        (["x", "--cache-bytes", "lots"], b"", 2, "--cache-bytes takes a size"),
        (["x", "--kv-bits", "6"], b"", 2, "--kv-bits takes 4 or 8"),
        (["x", "--kv-bits", "8", "--kv-group-size", "48"], b"", 2, "--kv-group-size takes 32, 64 or 128"),
        (["x", "--kv-group-size", "64"], b"", 2, "--kv-group-size means nothing without --kv-bits"),
        (["x", "-o", "nonsense"], b"", 2, "-o takes key=value"),
        (["x", "--top-p", "2"], b"", 2, "--top-p"),
        (["x", "--color", "blue"], b"", 2, "--color"),
        (["x", "--turns", "y"], b"", 2, "--turns and a prompt"),
        (["--model"], b"", 2, "requires an argument"),
        (["--no-such-option"], b"", 2, "no such option"),
        (["modles"], b"", 2, "did you mean `models`?"),
        (["x"], b"\xff\xfe", 65, "stdin is not UTF-8"),
        (["too long"], b"", 65, "the prompt has 9,999 tokens"),
        (["x", "-f", "/absent"], b"", 66, "can't read /absent"),
        (["x", "-s", "@/absent"], b"", 66, "can't read /absent"),
        (["--turns", "/absent"], b"", 66, "can't read /absent"),
        (["fail so far"], b"", 1, "the model run failed"),
        (["crash"], b"", 1, "ZeroDivisionError: a fault on purpose"),
    ],
)
def test_an_error_is_one_line_of_cause_and_one_of_help(
    arguments: list[str], stdin: bytes, code: int, cause: str
) -> None:
    done = run_program(*arguments, stdin=stdin)
    assert done.code == code
    assert len(done.error_lines) == 2
    assert done.error_lines[0].startswith("mlxchat: ")
    assert cause in done.error_lines[0]
    assert done.error_lines[1]


def test_what_was_said_before_a_failure_stays() -> None:
    assert run_program("fail half an answer").out == "half an answer\n"


@pytest.mark.parametrize("arguments", [["-vv"], ["-v", "-v"]])
def test_a_traceback_only_when_asked_for(arguments: list[str]) -> None:
    assert "Traceback" not in run_program("crash", "-v").err
    done = run_program("crash", *arguments)
    assert "Traceback" in done.err
    assert "ZeroDivisionError" in done.err
    assert done.code == 1


def test_a_traceback_by_environment() -> None:
    assert "Traceback" in run_program("replay", environ={"MLXCHAT_DEBUG": "1"}).err


def test_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        command("say hello"), stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, env=environment()
    ) as process:
        os.close(writer)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert err == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["say hello"],
        ["say hello", "--json"],
        ["--version"],
        ["--help"],
        ["models", "list"],
        ["doctor"],
        ["", "--json"],
        ["--nonsense", "--jsonl"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_an_output_error(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            command(*arguments), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=environment()
        )
    assert process.returncode == 74
    assert len(process.stderr.splitlines()) == 2
    assert b"can't write to standard output" in process.stderr


def test_a_missing_stdin_is_no_stdin() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command("say hello")], capture_output=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")


def redirected(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("arguments", [["say hello"], ["--version"], ["--help"], ["say hello", "--json"]], ids=" ".join)
def test_a_missing_stdout_is_an_output_error(arguments: list[str]) -> None:
    done = redirected(">&-", *arguments)
    assert done.returncode == 74
    assert len(done.stderr.splitlines()) == 2
    assert b"can't write to standard output" in done.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("more", [[], ["--color", "always"]], ids=["plain", "colour"])
def test_an_stderr_that_takes_nothing_costs_no_answer(redirection: str, more: list[str]) -> None:
    done = redirected(redirection, "say hello", "-v", *more)
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert redirected(redirection, " ").returncode == 2


@pytest.mark.parametrize("more", [[], ["--color", "always"]], ids=["plain", "colour"])
def test_an_stderr_whose_reader_has_left_costs_no_answer(more: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command("say hello", "-v", *more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=writer,
            env=environment(),
            timeout=PATIENCE_S,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"hello\n")


def test_a_stdin_that_does_not_end_is_mentioned() -> None:
    with subprocess.Popen(
        command("explain"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"--no-stdin" in process.stderr.readline()
        process.stdin.write(b"late")
        process.stdin.close()
        assert process.stdout.read() == b"You said: explain\n\nlate\n"


def test_the_version() -> None:
    import mlxchat

    assert run_program("--version", fake=False) == Ended(0, f"mlxchat {mlxchat.__version__}\n", "")
