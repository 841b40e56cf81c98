"""What Tab offers, without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli import prompt_completion
from mlxchat.cli.prompt_completion import PromptCompleter
from mlxchat.transcripts.session_file import read_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from support.run_program import run_program

pytestmark = pytest.mark.plain


def offered(text: str) -> list[str]:
    """What the line would read with each completion."""
    found = PromptCompleter().get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [text[: len(text) + one.start_position] + one.text for one in found]


def test_commands_and_their_other_names() -> None:
    assert offered("/un") == ["/undo"]
    assert "/quit" in offered("/qu")
    assert offered("un") == []


def test_words_that_a_command_takes() -> None:
    assert offered("/markdown o") == ["/markdown on", "/markdown off"]


def test_paths_after_commands_and_in_text(tmp_path: Path) -> None:
    (tmp_path / "only-one.png").touch()
    assert offered(f"/image {tmp_path}/on") == [f"/image {tmp_path}/only-one.png"]
    assert offered(f"look at {tmp_path}/on") == [f"look at {tmp_path}/only-one.png"]
    assert offered(f"{tmp_path}/on") == [f"{tmp_path}/only-one.png"]
    assert offered("look at on") == []


def test_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_completion, "model_names", lambda: ["smollm2", "qwen3"])
    monkeypatch.setitem(prompt_completion.COMMANDS, "/model", "")
    assert offered("/model q") == ["/model qwen3"]
    assert offered("/model ") == ["/model smollm2", "/model qwen3"]


def test_saved_chats_by_the_start_of_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path))
    assert run_program("say hello", environ={"MLXCHAT_HOME": str(tmp_path)}).code == 0
    [path] = (tmp_path / "sessions").glob("*.jsonl")
    assert offered(f"/load {path.stem[:3]}") == [f"/load {path.stem}"]
    assert offered("/load zz") == []
    [found] = PromptCompleter().get_completions(Document("/load "), CompleteEvent())
    assert found.display_meta_text == read_session(path).title
    path.write_text("torn", encoding="utf-8")
    assert offered("/load ") == []
