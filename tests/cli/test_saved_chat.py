"""Chats that are saved and gone on with, from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlxchat.transcripts.session_appender import SessionBusy
from mlxchat.transcripts.session_file import SavedSession, read_session
from support.run_program import PATIENCE_S, PROGRAM, Ended, command, environment, run_program
from support.schemas import validate
from support.sessions import opened
from support.terminal import CTRL_D, Terminal

pytestmark = pytest.mark.plain


class Home:
    """A home of its own, and the program run with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sessions = folder / "sessions"
        self.environ = {"MLXCHAT_HOME": str(folder)}

    def run(self, *arguments: str, stdin: bytes = b"") -> Ended:
        return run_program(*arguments, stdin=stdin, environ=self.environ)

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.code == 0, done.err
        return validate(done.json)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.environ),
        )

    def terminal(self, *arguments: str) -> Terminal:
        return Terminal([str(PROGRAM), *arguments], environment(self.environ))

    def read(self, session_id: str) -> SavedSession:
        return read_session(self.sessions / f"{session_id}.jsonl")

    @property
    def ids(self) -> set[str]:
        return {path.stem for path in self.sessions.glob("*.jsonl")}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.sessions.mkdir(parents=True)
    return made


def said(session: SavedSession) -> list[str]:
    return [entry.message.text for entry in session.conversation]


def test_the_first_run_says_where_chats_are(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.run("say one") == Ended(
        0, "one\n", f"Chats are saved in {home.sessions}, for you alone; --no-save or /private leaves nothing.\n"
    )
    assert home.run("say two").err == ""
    quiet = Home(tmp_path / "quiet")
    assert quiet.run("say one", "-q").err == ""


def test_nothing_is_left_with_no_save(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.run("say one", "--no-save") == Ended(0, "one\n", "")
    assert home.json("say one", "--no-save")["session_id"] is None
    assert not home.folder.exists()


def test_json_names_the_session(home: Home) -> None:
    one = home.json("think one")["session_id"]
    assert said(home.read(one)) == ["think one", "one"]
    turns = validate(home.run("--turns", "-", "--json", stdin=b"say a\nsay b\n").json)["turns"]
    assert len({turn["session_id"] for turn in turns} - {one, None}) == 1
    events = [validate(event) for event in home.run("say c", "--jsonl").lines]
    assert events[0]["session_id"] in home.ids


def test_going_on_with_a_template_file_names_it(home: Home, tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages }}")
    home.json("say one", "--template", str(template))
    assert f"tokens to prefill, with the template {template}\n" in home.run("-c", "say two").err


def test_going_on_with_the_one_used_last(home: Home) -> None:
    first = home.json("say one")["session_id"]
    done = home.run("-c", "say two", "--json")
    assert done.json["session_id"] == first
    assert done.err == f"resuming {first} “say one”: 2 messages, about 4,216 tokens to prefill\n"
    assert said(home.read(first)) == ["say one", "one", "say two", "two"]


def test_going_on_by_the_start_of_an_id(home: Home) -> None:
    first = home.json("say one")["session_id"]
    home.json("say other")
    assert home.json("-r", first[:8], "say two")["session_id"] == first
    assert said(home.read(first))[-1] == "two"


def test_a_fork_leaves_the_old_one(home: Home) -> None:
    first = home.json("say one")["session_id"]
    fork = home.json("-r", first, "--fork", "say two")["session_id"]
    assert fork != first
    assert said(home.read(first)) == ["say one", "one"]
    assert said(home.read(fork)) == ["say one", "one", "say two", "two"]


def test_going_on_without_saving(home: Home) -> None:
    first = home.json("say one")["session_id"]
    before = home.read(first).path.read_bytes()
    assert home.json("-c", "say two", "--no-save")["session_id"] is None
    assert home.read(first).path.read_bytes() == before
    assert home.ids == {first}


def test_the_settings_come_back_and_flags_go_before_them(home: Home) -> None:
    flags = "-s Brief. --temp 0.5 --top-k 7 --seed 3 --max-tokens 9 --no-think -m first -o repetition_penalty=1.1"
    first = home.json("say one", *flags.split(), "-o", "stop=END")["session_id"]
    settings = home.read(first).settings
    home.json("-c", "say two")
    assert home.read(first).settings == settings
    assert [json.loads(line)["type"] for line in home.read(first).path.read_text().splitlines()].count("settings") == 0
    home.json("-c", "say three", "--temp", "0.9", "-m", "second", "--think", "--think-budget", "5", "-o", "stop=STOP")
    changed = home.read(first).settings
    assert (changed.model, changed.system) == ("second", "Brief.")
    assert (changed.sampling.temp, changed.sampling.top_k, changed.sampling.stop) == (0.9, 7, ("STOP",))
    assert (changed.thinking.enabled, changed.thinking.budget) == (True, 5)
    assert changed.sampling.extra == {"repetition_penalty": 1.1}


def test_another_model_is_said(home: Home) -> None:
    home.json("say one", "-m", "first")
    assert "a branch, with second" in home.run("-c", "say two", "-m", "second").err


def test_another_system_prompt(home: Home) -> None:
    first = home.json("say one", "-s", "Be brief.")["session_id"]
    home.json("-c", "say two", "-s", "Be long.")
    assert said(home.read(first)) == ["Be long.", "say one", "one", "say two", "two"]
    home.json("-c", "say three")
    assert said(home.read(first))[0] == "Be long."


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (["-c", "x"], 66, "no saved session to continue"),
        (["-r", "abc", "x"], 66, "no saved session begins with 'abc'"),
        (["-c", "-r", "abc", "x"], 2, "-c and -r"),
        (["--fork", "x"], 2, "--fork needs a chat"),
        (["-c", "--fork", "--no-save", "x"], 2, "--fork and --no-save"),
        (["-r"], 2, "requires an argument"),
    ],
)
def test_what_cannot_go_on(home: Home, arguments: list[str], code: int, cause: str) -> None:
    done = home.run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert cause in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert validate(home.run(*arguments, "--json").json)["error"] if arguments[-1] != "-r" else True


def test_a_session_that_is_none(home: Home) -> None:
    (home.sessions / "abc.jsonl").write_text("rubbish\n", encoding="utf-8")
    done = home.run("-c", "x")
    assert done.code == 65
    assert "line 1" in done.error_lines[0]


def test_a_failed_turn_is_a_branch(home: Home) -> None:
    first = home.json("say one")["session_id"]
    assert home.run("-c", "fail half").code == 1
    session = home.read(first)
    assert said(session) == ["say one", "one"]
    assert [entry.message.text for entry in session.entries] == ["say one", "one", "fail half", "half"]


# -- what breaks -----------------------------------------------------------------------------------------------


def hanging(home: Home, *arguments: str) -> subprocess.Popen[bytes]:
    """A program that has said half an answer and waits."""
    process = home.start(*arguments)
    assert process.stderr is not None
    while b"hanging" not in process.stderr.readline():
        pass
    return process


def ended(process: subprocess.Popen[bytes], how: int) -> Ended:
    process.send_signal(how)
    out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_program_ends_in_the_middle_of_an_answer(home: Home, how: int) -> None:
    first = home.json("say one")["session_id"]
    out = ended(hanging(home, "-c", "hang half an answer"), how).out
    session = home.read(first)
    assert out in ("half an answer", "half an answer\n")
    assert said(session) == ["say one", "one", "hang half an answer", "half an answer"]
    assert session.conversation[-1].message.interrupted
    home.json("-c", "say two")
    assert said(home.read(first))[-3:] == ["half an answer", "say two", "two"]
    assert [path.suffix for path in home.sessions.iterdir()] == [".jsonl"]


def test_a_message_without_an_answer_is_offered_again(home: Home) -> None:
    first = home.json("say one")["session_id"]
    ended(hanging(home, "-c", "hang silently"), signal.SIGKILL)
    assert said(home.read(first))[-1] == "hang silently"
    with home.terminal("-c") as terminal:
        terminal.wait_for_prompt("hang silently")
    home.json("-c", "say two")
    assert said(home.read(first)) == ["say one", "one", "say two", "two"]


def test_two_programs_on_one_session(home: Home) -> None:
    first = home.json("say one")["session_id"]
    process = hanging(home, "-c", "hang on")
    listed = {one["id"]: one["open"] for one in home.json("sessions", "list")["sessions"]}
    assert listed == {first: True}
    second = home.run("-c", "say two", "--json")
    assert second.error_lines[0] == f"the session {first} is open in another program; going on in a copy"
    fork = second.json["session_id"]
    assert f"in the copy {fork}" in second.error_lines[1]
    assert ended(process, signal.SIGINT).code == 130
    assert said(home.read(first)) == ["say one", "one", "hang on", "on"]
    assert said(home.read(fork)) == ["say one", "one", "say two", "two"], "what is still being said is not copied"


def test_planted_without_the_lock_a_second_program_gets_in(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = home.json("say one")["session_id"]
    process = hanging(home, "-c", "hang on")
    with pytest.raises(SessionBusy):
        opened(home.read(first).path)
    monkeypatch.setattr("mlxchat.transcripts.session_appender._is_locked", lambda descriptor, wanted: False)
    opened(home.read(first).path).close()
    ended(process, signal.SIGKILL)


UNWRITABLE: dict[str, Callable[[Home], None]] = {
    "no folder": lambda home: (home.sessions.rmdir(), home.sessions.write_text("")),  # type: ignore[func-returns-value]
    "no home": lambda home: (home.sessions.rmdir(), home.folder.rmdir(), home.folder.write_text("")),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("trouble", sorted(UNWRITABLE))
def test_a_session_that_cannot_be_written_costs_no_answer(home: Home, trouble: str) -> None:
    UNWRITABLE[trouble](home)
    done = home.run("--turns", "-", stdin=b"say one\nsay two\n")
    assert (done.code, done.out) == (74, "one\n\ntwo\n")
    assert len(done.error_lines) == 1
    assert "can't save this chat" in done.error_lines[0]
    value = validate(home.run("say one", "--json").json)
    assert value["text"] == "one"
    assert home.run("say one", "--jsonl").lines[-1]["exit_code"] == 74
    assert home.run("say one", "--no-save") == Ended(0, "one\n", "")
    assert home.run("fail x").code == 1, "what went wrong first counts"


# -- safety ----------------------------------------------------------------------------------------------------


def test_a_hostile_header_changes_nothing_and_is_named(home: Home) -> None:
    header = {"type": "session", "harness": "mlxchat", "id": "abc", "model": "m"}
    header |= {"tools": ["rm"], "editor": "evil", "cache_dir": "/", "allow_tool": ["*"]}  # type: ignore[dict-item]
    header["sampling"] = {"extra": {"tools": 1, "repetition_penalty": -5}}  # type: ignore[assignment]
    (home.sessions / "abc.jsonl").write_text(json.dumps(header) + "\n", encoding="utf-8")
    done = home.run("-r", "abc", "say one")
    assert (done.code, done.out) == (0, "one\n")
    assert "is not obeyed: allow_tool, cache_dir, editor, tools" in done.err
    assert done.err.count("a setting of the session is left out") == 2


def test_words_of_a_session_reach_the_terminal_as_words(home: Home) -> None:
    home.json("say \x1b[2Jone")
    assert "\x1b" not in home.run("-c", "say two").err


# -- at the terminal -------------------------------------------------------------------------------------------


def test_a_conversation_goes_on(home: Home) -> None:
    with home.terminal() as terminal:
        terminal.wait_for_prompt()
        terminal.line("say one")
        terminal.wait_for(r"ctx 12 %\n>$")
        terminal.line("/undo")
        terminal.wait_for_prompt("say one")
        terminal.line(" more")
        terminal.wait_for(r"ctx 12 %\n>$", after="one more")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
    [first] = home.ids
    assert said(home.read(first)) == ["say one more", "one more"]
    with home.terminal("-c") as terminal:
        terminal.wait_for(rf"resuming {first} .*2 messages")
        terminal.wait_for_prompt()
        terminal.line("/clear")
        terminal.wait_for(r"a new chat\n>$")
        terminal.line("say new")
        terminal.wait_for(r"ctx 12 %\n>$")
        terminal.send(CTRL_D)
        assert terminal.wait_for_exit() == 0
    assert len(home.ids) == 2
    assert said(home.read(first)) == ["say one more", "one more"]
