"""Saved chats of the real program: killed while it speaks, and gone on with in another process to the same ids."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from mlxchat.transcripts.session_file import SavedSession, read_session
from support.process import Scripted, finished
from support.schemas import validate
from support.scripted import Reply, model_folder
from support.tiny_tokenizer import load

pytestmark = pytest.mark.plain

YES = "Hm.\n</think>\n\nYes."
ANSWER = "Paris is the capital."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("saved") / "model", "qwen3", "qwen36")


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Reply:
    """A thought and an answer in ids that no tokenizer would give: one for each letter."""
    tokenizer = load(tmp_path_factory.mktemp("tokenizer"), "qwen36")

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    ids = [*encode("The user asks.\n</think>\n\n"), *(one for letter in ANSWER for one in encode(letter))]
    assert len(ids) > len(encode(f"The user asks.\n</think>\n\n{ANSWER}"))
    return {"ids": ids}


def program(model: Path, home: Path, name: str, *replies: Reply) -> Scripted:
    """A run of its own (script, gate, log) with a home that it shares."""
    run = Scripted(model, home.parent / name, *replies, saves=True)
    run.environment["MLXCHAT_HOME"] = str(home)
    (home / "sessions").mkdir(parents=True, exist_ok=True)
    return run


def the_session(home: Path) -> SavedSession:
    [path] = (home / "sessions").glob("*.jsonl")
    return read_session(path)


def said(session: SavedSession) -> list[str]:
    return [entry.message.text for entry in session.conversation]


def second_prompts(model: Path, tmp_path: Path, spelled: Reply, edit: bool) -> tuple[list[int], list[int]]:
    """All ids of the second turn in one process, and of the same turn in a process that resumed the first."""
    both = program(model, tmp_path / "home-a", "a", spelled, YES)
    (both.work / "turns.txt").write_text("What is it?\nSure?\n")
    assert both.run("--turns", "turns.txt").code == 0
    assert program(model, tmp_path / "home-b", "b", spelled).run("What is it?").code == 0
    if edit:
        path = the_session(tmp_path / "home-b").path
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.pop("generated", None)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    later = program(model, tmp_path / "home-b", "c", YES)
    ended = later.run("-c", "Sure?")
    assert (ended.code, ended.out) == (0, "Yes.\n")
    assert "2 messages, about" in ended.err
    return both.log()[-1].ids, later.log()[-1].ids


def test_a_resumed_chat_feeds_the_ids_that_were_sampled(model: Path, tmp_path: Path, spelled: Reply) -> None:
    there, here = second_prompts(model, tmp_path, spelled, edit=False)
    assert here == there


def test_planted_without_the_saved_ids_the_prompt_is_another(model: Path, tmp_path: Path, spelled: Reply) -> None:
    there, here = second_prompts(model, tmp_path, spelled, edit=True)
    assert here != there


def greatest_id_fed(model: Path, tmp_path: Path, prelude: str = "") -> int:
    """After a session's file was given an id that no vocabulary has and that decodes to nothing."""
    home = tmp_path / "home"
    program(model, home, "a", YES).run("What is it?")
    path = the_session(home).path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "generated" in line:
            line["generated"]["ids"].insert(line["generated"]["answerStart"], 1_000_000)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    later = program(model, home, "b", "</think>\n\nSure.")
    finished(later.start("-c", "Sure?", prelude=prelude))
    return max(later.log()[-1].ids)


def test_ids_beyond_the_vocabulary_are_never_fed(model: Path, tmp_path: Path) -> None:
    assert greatest_id_fed(model, tmp_path) < 1_000_000


def test_planted_ids_that_nobody_looks_at_are_fed(model: Path, tmp_path: Path) -> None:
    prelude = "from mlxchat.engine.encoding import Encoder; Encoder.knows = lambda self, ids: True"
    assert greatest_id_fed(model, tmp_path, prelude) == 1_000_000


def test_a_kill_in_the_middle_of_an_answer_loses_nothing_that_was_shown(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = program(model, home, "a", "The user asks.\n</think>\n\nOne two three four five six seven.")
    run.gate.hold("1.token.24")
    process = run.start("What is it?")
    run.gate.wait_held()
    process.send_signal(signal.SIGKILL)
    ended = finished(process)
    assert ended.code == -signal.SIGKILL
    session = the_session(home)
    assert ended.out, "the kill came while it spoke"
    last = session.conversation[-1].message
    assert last.interrupted
    assert last.text.startswith(ended.out)
    assert last.reasoning is not None
    assert "The user asks." in last.reasoning
    later = program(model, home, "b", "</think>\n\nEight.")
    assert validate(later.run("-c", "Go on.", "--json").json)["session_id"] == session.id
    assert said(the_session(home)) == ["What is it?", last.text, "Go on.", "Eight."]
    assert [one.suffix for one in (home / "sessions").iterdir()] == [".jsonl"]


def test_a_kill_before_the_first_word_keeps_the_message(model: Path, tmp_path: Path) -> None:
    run = program(model, tmp_path / "home", "a", "Never.")
    run.gate.hold("1.prefill.1")
    process = run.start("What is it?")
    run.gate.wait_held()
    process.send_signal(signal.SIGKILL)
    finished(process)
    assert said(the_session(tmp_path / "home")) == ["What is it?"]
