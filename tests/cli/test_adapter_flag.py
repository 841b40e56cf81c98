"""`--adapter` means the same in every command that runs a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.batch_flags import BatchFlags
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.common_flags import CommonFlags
from mlxchat.cli.replay_flags import ReplayFlags
from mlxchat.cli.replay_words import Subject
from support.adapters import write_adapter
from support.batches import answers, request, write
from support.replays import transcript
from support.run_program import run_program
from support.schemas import validate
from support.scripted import model_folder
from support.transcripts import FIXTURES

pytestmark = pytest.mark.plain

TRACE = FIXTURES / "openai_conversations.jsonl"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny", "llama", "chatml")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter") / "lora")


@pytest.mark.parametrize(
    "flags",
    [
        ChatFlags(adapter="a"),
        ReplayFlags(transcripts=["t"], adapter="a"),
        BatchFlags(requests="r", out="o", adapter="a"),
    ],
    ids=lambda flags: type(flags).__name__,
)
def test_it_reaches_the_engine(flags: CommonFlags) -> None:
    assert flags.engine_options().adapter == "a"


def test_a_batch_is_answered_by_model_and_adapter(model: Path, adapter: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "requests.jsonl", [request("a", max_tokens=12)])
    said = []
    for name, more in (("plain", []), ("adapted", ["--adapter", str(adapter)])):
        out = tmp_path / f"{name}.jsonl"
        ended = run_program("batch", str(file), "--out", str(out), "-m", str(model), "--json", *more, fake=False)
        assert ended.code == 0, ended.err
        assert validate(ended.json)["adapter"] == (str(adapter) if more else None)
        said.append(answers(out)[0]["response"]["body"]["choices"][0]["message"])
    assert said[0] != said[1]


@pytest.mark.parametrize("how", [[], ["--plan"]])
def test_a_replay_names_it(model: Path, adapter: Path, how: list[str]) -> None:
    command = ["replay", str(TRACE), "-m", str(model), "--adapter", str(adapter), "--limit-turns", "1", *how]
    ended = run_program(*command, "--json", fake=False)
    assert ended.code == 0, ended.err
    assert validate(ended.json)["adapter"] == str(adapter)
    lines = run_program(*command, "--jsonl", fake=False).lines
    assert validate(lines[0])["adapter"] == str(adapter)


@pytest.mark.parametrize("how", [[], ["--plan"]])
def test_one_that_is_none_is_told_of(model: Path, tmp_path: Path, how: list[str]) -> None:
    ended = run_program("replay", str(TRACE), "-m", str(model), "--adapter", str(tmp_path / "absent"), *how, fake=False)
    assert ended.code == 69
    assert "absent is not a folder" in ended.error_lines[0]


def test_people_read_its_name() -> None:
    assert Subject(transcript(), [], "smollm2", "chatml", 99, adapter="/a/lora").model_words == "smollm2 + lora"
    assert Subject(transcript(), [], "smollm2", "chatml", 99).model_words == "smollm2"
