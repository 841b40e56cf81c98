"""Commands that tools are bound to: their words, their surroundings, their end."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.tools import command as module
from mlxchat.engine.tools.command import BadArguments, Command
from mlxchat.engine.tools.excerpt import HEAD_BYTES, TAIL_BYTES, Excerpt, excerpt_of
from mlxchat.engine.tools.tool import ToolResult
from support.process import closed_terminal, has_ended
from support.scripted import wait_until

pytestmark = pytest.mark.plain

PATIENCE_S = 30.0
PROPERTIES = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "names": {"type": "array", "items": {"type": "string"}},
    },
}


def never() -> bool:
    return False


def words(*command: str, **arguments: Any) -> list[str]:
    return Command(command, PROPERTIES, "argv").words(arguments)


def python(code: str, timeout_s: float = PATIENCE_S, environment: tuple[str, ...] = ()) -> Command:
    return Command((sys.executable, "-c", code), PROPERTIES, "stdin", timeout_s, environment)


def shell(code: str, timeout_s: float = PATIENCE_S) -> Command:
    return Command(("/bin/sh", "-c", code), PROPERTIES, "stdin", timeout_s)


# -- words -------------------------------------------------------------------------------------------------------


def test_arguments_become_words_and_no_shell_reads_them() -> None:
    assert words("say", "{text}", text="a; rm -rf / $(id) 'b'") == ["say", "a; rm -rf / $(id) 'b'"]
    assert words("say", "--text={text}", "-n", "{count}", text="x", count=3) == ["say", "--text=x", "-n", "3"]
    assert words("say", "{names}", names=["a b", "c"]) == ["say", "a b", "c"]
    assert words("awk", "{print}", "{other}") == ["awk", "{print}", "{other}"], "no argument is called so"


def test_a_word_without_its_argument_is_left_out() -> None:
    assert words("say", "--count={count}", "{text}", text="x") == ["say", "x"]
    assert words("say", "--count={count}", "{text}", text="x", count=None) == ["say", "x"]


def test_text_never_becomes_an_option() -> None:
    with pytest.raises(BadArguments, match="begins with a dash"):
        words("grep", "{text}", text="--file=/etc/passwd")
    with pytest.raises(BadArguments, match="begins with a dash"):
        words("ls", "{names}", names=["a", "-R"])
    assert words("grep", "--", "{text}", text="--file") == ["grep", "--", "--file"]
    assert words("grep", "--regexp={text}", text="-x") == ["grep", "--regexp=-x"]


def test_planted_the_check_for_dashes_is_what_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_check_dash", lambda *_: None)
    assert words("grep", "{text}", text="--file=/etc/passwd") == ["grep", "--file=/etc/passwd"]


def test_arguments_are_checked_before_anything_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    command = Command(("touch", str(marker), "{count}"), {**PROPERTIES, "required": ["count"]}, "argv")
    for arguments, cause in (
        ({"count": "three"}, "count: 'three' is not of type 'integer'"),
        ({}, "'count' is a required property"),
        ({"count": 1, "more": 1}, "no argument called more"),
    ):
        result = command.run(arguments, never)
        assert result.status == "failed"
        assert cause in result.text
    assert not marker.exists()


def test_a_schema_elsewhere_is_not_fetched() -> None:
    command = Command(("true",), {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}})
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        command.check({"a": 1})


# -- surroundings ------------------------------------------------------------------------------------------------


def test_arguments_on_stdin_and_both_streams_as_output() -> None:
    code = "import json, sys; print(json.load(sys.stdin)['text'], flush=True); print('and', file=sys.stderr)"
    assert python(code).run({"text": "é"}, never) == ToolResult("ran", "é\nand\n")


def test_only_named_variables_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMED", "n")
    monkeypatch.setenv("SECRET", "s")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    seen = json.loads(python(code, environment=("NAMED", "ABSENT")).run({}, never).text)
    assert seen["NAMED"] == "n"
    assert "PATH" in seen
    assert "SECRET" not in seen
    assert set(seen) <= {*module.ALWAYS_PASSED, "NAMED", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}


def test_what_goes_wrong_is_a_result() -> None:
    assert shell("echo partly; exit 3").run({}, never) == ToolResult("failed", "partly\n[exit code 3]")
    assert shell("kill -9 $$").run({}, never) == ToolResult("failed", "[killed by signal 9]")
    absent = Command(("/absent/program",), PROPERTIES).run({}, never)
    assert absent == ToolResult("failed", "error: /absent/program can't be run: No such file or directory")
    zero = Command(("echo", "{text}"), PROPERTIES, "argv").run({"text": "a\0b"}, never)
    assert (zero.status, "null byte" in zero.text) == ("failed", True)


def test_a_command_that_never_reads_its_input_is_not_waited_for() -> None:
    assert shell("exit 0").run({"text": "x" * 10_000_000}, never).status == "ran"


# -- end ---------------------------------------------------------------------------------------------------------

FAMILY = "sleep 600 & echo $! > {pids}; setsid sleep 600 & echo $! >> {pids}; {then}"


def family(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


@pytest.mark.parametrize("how", ["timed_out", "interrupted", "exited", "raised"])
def test_nothing_of_it_is_left(how: str, tmp_path: Path) -> None:
    """Its children end with it, whether it is killed, stopped or ends by itself; and at an exception."""
    pids = tmp_path / "pids"
    then = "exit 0" if how == "exited" else "wait"
    command = shell(FAMILY.format(pids=pids, then=then), timeout_s=2.0 if how == "timed_out" else PATIENCE_S)

    def stopped() -> bool:
        if len(family(pids)) < 2:
            return False
        if how == "raised":
            raise KeyboardInterrupt
        return how == "interrupted"

    if how == "raised":
        with pytest.raises(KeyboardInterrupt):
            command.run({}, stopped)
    else:
        assert command.run({}, stopped).status == ("ran" if how == "exited" else how)
    started = family(pids)
    assert len(started) == 2
    if how == "exited":  # the one that left the group had lost its parent before anybody looked
        os.kill(started.pop(), 9)
    wait_until(lambda: all(has_ended(pid) for pid in started), "its children to end")


def test_one_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = shell(f"trap '' TERM; touch {ready}; while true; do sleep 0.1; done")
    assert command.run({}, ready.exists).status == "interrupted"


def test_a_closed_terminal_that_is_ignored_ends_no_command() -> None:
    """As under nohup: the program goes on, so its command does too, and ignores it for itself."""
    code = (
        "import os, signal; os.kill(os.getppid(), signal.SIGHUP); os.kill(os.getpid(), signal.SIGHUP)\n"
        "import time; time.sleep(0.3); print('lives')"
    )
    with closed_terminal(signal.SIG_IGN):
        assert python(code).run({}, never) == ToolResult("ran", "lives\n")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


# -- output ------------------------------------------------------------------------------------------------------


def test_ten_megabytes_become_two_ends() -> None:
    code = "import sys; sys.stdout.write('first\\n' + 'x' * 10_000_000 + '\\nlast')"
    result = python(code).run({}, never)
    assert result.status == "ran"
    assert result.text.startswith("first\n")
    assert result.text.endswith("\nlast")
    assert "bytes left out" in result.text
    assert len(result.text) < HEAD_BYTES + TAIL_BYTES + 100


def test_an_excerpt_says_how_much_is_missing_and_cuts_no_character() -> None:
    excerpt = Excerpt(5, 5)
    for piece in ("ééé", "x" * 20, "üüü"):
        excerpt.add(piece.encode())
    assert excerpt.text() == "éé\n[… 22 bytes left out …]\nüü"
    assert excerpt_of("short") == "short"
    whole = Excerpt(2, 2)
    whole.add("éé".encode())
    assert whole.text() == "éé"


def test_output_is_cleaned() -> None:
    assert excerpt_of("a\x1b[2Jb\x1b]0;title\x07c\x00d\rz") == "abcdz"


def test_what_is_kept_does_not_grow() -> None:
    excerpt = Excerpt(10, 10)
    for _ in range(1000):
        excerpt.add(b"0123456789")
    assert len(excerpt._tail) <= 30
    assert excerpt.text() == "0123456789\n[… 9,980 bytes left out …]\n0123456789"
