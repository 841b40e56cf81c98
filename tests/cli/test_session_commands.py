"""`mlxchat sessions …`: what it prints, in words and in JSON, what it imports, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mlxchat.cli.ages import age_text, parse_age
from mlxchat.errors import UsageError
from support.run_program import Ended, environment, run_program
from support.schemas import validate

pytestmark = pytest.mark.plain

HEAVY = ("mlx", "mlx_lm", "mlx_vlm", "transformers", "huggingface_hub", "numpy", "tokenizers", "prompt_toolkit")
ONE, TWO = "aa11aa11aa11", "bb22bb22bb22"


class Saved:
    """A home with two chats."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "sessions"
        self.folder.mkdir(parents=True)
        self.write(ONE, "What is \x1b[31mred?", "A colour.", model="m", age=3 * 86400)
        self.write(TWO, "Hello", "Hi.", "And?", "Bye.", model="n")

    def write(self, session_id: str, *texts: str, model: str, age: float = 0) -> Path:
        path = self.folder / f"{session_id}.jsonl"
        lines: list[dict[str, Any]] = [{"type": "session", "harness": "mlxchat", "id": session_id, "model": model}]
        for at, text in enumerate(texts):
            message = {"role": "assistant" if at % 2 else "user", "content": text}
            lines.append(
                {"type": "message", "id": f"m{at}", "parentId": f"m{at - 1}" if at else None, "message": message}
            )
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
        return path

    def run(self, *words: str) -> Ended:
        return run_program("sessions", *words, environ={"MLXCHAT_HOME": str(self.home)}, fake=False)

    def json(self, *words: str) -> dict[str, Any]:
        done = self.run(*words, "--json")
        assert (done.code, done.err) == (0, ""), done.err
        return validate(done.json)

    @property
    def ids(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.jsonl")}


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "home")


def test_list(saved: Saved) -> None:
    done = saved.run("list")
    assert done.out.splitlines() == [
        "ID            AGE  TURNS  MODEL  FIRST WORDS",
        f"{TWO}  now  2      n      Hello",
        f"{ONE}  3 d  1      m      What is red?",
    ]
    value = saved.json("list")
    assert [one["id"] for one in value["sessions"]] == [TWO, ONE]
    assert value["sessions"][1]["age_s"] == pytest.approx(3 * 86400, abs=60)
    assert value["folder"] == str(saved.folder)


def test_no_name_breaks_the_table(saved: Saved) -> None:
    file = saved.write(ONE, "Hello", "Hi.", model="m\nforged")
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"type": "session_info", "name": "a\nforged  row"}) + "\n")
    assert len(saved.run("list").out.splitlines()) == 3


def test_list_of_nothing(tmp_path: Path) -> None:
    done = run_program("sessions", "list", environ={"MLXCHAT_HOME": str(tmp_path / "new")}, fake=False)
    assert done == Ended(0, "", "no chat is saved yet\n")
    assert not (tmp_path / "new").exists(), "looking makes nothing"


def test_list_names_what_it_cannot_read(saved: Saved) -> None:
    (saved.folder / "cc33.jsonl").write_text("rubbish\n", encoding="utf-8")
    done = saved.run("list")
    assert len(done.out.splitlines()) == 3
    assert "line 1 is no session header" in done.err


def test_show(saved: Saved) -> None:
    out = saved.run("show", "bb").out
    assert out.index("Hello") < out.index("Hi.") < out.index("And?") < out.index("Bye.")
    assert "\x1b" not in saved.run("show", "aa").out
    value = saved.json("show", "bb")
    assert [message["content"] for message in value["messages"]] == ["Hello", "Hi.", "And?", "Bye."]
    assert value["settings"]["model"] == "n"
    assert value["messages"][1]["parent_id"] == "m0"


def test_rename(saved: Saved) -> None:
    assert saved.json("rename", "aa", "On  colours") == {
        "schema": "mlxchat.sessions-rename/1",
        "id": ONE,
        "name": "On colours",
    }
    assert "On colours" in saved.run("list").out
    assert saved.run("rename", "aa", "").err == f"{ONE} has no name\n"
    assert "red" in saved.run("list").out


def test_what_is_no_session_gets_no_name(saved: Saved) -> None:
    other = saved.folder / "cc33.jsonl"
    other.write_text("mine\n")
    done = saved.run("rename", "cc33", "On colours")
    assert (done.code, other.read_text()) == (65, "mine\n")
    assert "line 1 is no session header" in done.error_lines[0]


def test_search(saved: Saved) -> None:
    assert saved.run("search", "a", "COLOUR").out == f"{ONE}  assistant  A colour.\n"
    assert saved.json("search", "colour")["matches"] == [
        {"id": ONE, "message_id": "m1", "role": "assistant", "excerpt": "A colour."}
    ]
    assert saved.run("search", "absent") == Ended(0, "", "no saved chat holds that\n")
    assert "\x1b" not in saved.run("search", "red").out


@pytest.mark.parametrize("form", ["markdown", "openai", "sts"])
def test_export(saved: Saved, form: str, tmp_path: Path) -> None:
    text = saved.run("export", "bb", "--format", form).out
    assert "Bye." in text
    assert saved.json("export", "bb", "--format", form)["text"] == text
    out = tmp_path / "out"
    assert saved.json("export", "bb", "--format", form, "--out", str(out))["text"] is None
    assert out.read_text(encoding="utf-8") == text
    assert saved.run("export", "bb", "--out", str(out)).err == f"{TWO} is in {out}\n"


def test_removal(saved: Saved) -> None:
    assert saved.json("rm", "--older-than", "1w")["removed"] == []
    assert saved.json("rm", "--older-than", "2d")["removed"] == [ONE]
    assert saved.ids == {TWO}
    assert saved.run("rm", "bb", "bb22").err == "removed 1 chat\n"
    assert saved.ids == set()


def test_removal_of_all(saved: Saved) -> None:
    assert saved.run("rm", "--all") == Ended(0, "", "removed 2 chats\n")
    assert saved.ids == set()


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (["show", "zz"], 66, "no saved session begins with 'zz'"),
        (["show"], 2, "missing argument"),
        (["rm"], 2, "say which chats"),
        (["rm", "aa", "--all"], 2, "say which chats"),
        (["rm", "--older-than", "soon"], 2, "--older-than takes an age"),
        (["rm", "aa", "zz"], 66, "'zz'"),
        (["search", " "], 2, "nothing to look for"),
        (["export", "aa", "--format", "pdf"], 2, "pdf"),
        (["export", "aa", "--out", "/absent/x"], 74, "can't write /absent/x: there is no folder /absent"),
        (["lst"], 2, "no such command"),
    ],
)
def test_what_is_refused(saved: Saved, words: list[str], code: int, cause: str) -> None:
    done = saved.run(*words)
    assert (done.code, done.out) == (code, "")
    assert cause in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert saved.ids == {ONE, TWO}
    assert validate(saved.run(*words, "--json").json)["error"]["message"] in done.error_lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        *(["sessions", word] for word in ("list", "--help")),
        *(["sessions", word, "aa"] for word in ("show", "search", "export", "rm")),
        ["sessions", "rename", "aa", "x"],
        ["-r", "zz", "hello"],
        ["-c", "--fork", "--no-save", "x"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(saved: Saved, arguments: list[str]) -> None:
    source = (
        "import sys, json\n"
        "from mlxchat.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    home = {"MLXCHAT_HOME": str(saved.home)}
    done = subprocess.run(
        [sys.executable, "-c", source], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(home)
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "mlxchat" in loaded
    assert not set(HEAVY) & set(loaded)


@pytest.mark.parametrize(("text", "seconds"), [("45m", 2700), ("12h", 43200), ("30d", 2592000), (" 2 W ", 1209600)])
def test_ages_are_read(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "1d1h", "٣d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(UsageError):
        parse_age(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (59, "now"), (61, "1 min"), (7200, "2 h"), (8 * 86400, "8 d"), (15 * 86400, "2 w"), (4e7, "1 y")],
)
def test_ages_are_written(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize("fault", ["turns", "settings", "path"])
def test_planted_faults_are_caught(saved: Saved, fault: str) -> None:
    value = saved.json("show", "aa")
    del value[fault]
    with pytest.raises(jsonschema.ValidationError):
        validate(value)


def test_a_folder_that_is_called_like_a_chat_is_none(saved: Saved) -> None:
    (saved.folder / "folder.jsonl").mkdir()
    assert saved.run("list").err == ""
    assert saved.run("rm", "--all") == Ended(0, "", "removed 2 chats\n")
    assert [path.name for path in saved.folder.iterdir()] == ["folder.jsonl"]
