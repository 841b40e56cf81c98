"""Turn after turn on real models: reasoning is rewound past, and every turn after the first costs what is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.models import ModelFolder
from mlxchat.engine.options import RequestOptions, SamplingOptions, ThinkingOptions
from support.oracle import Fed, contains, costs, read_log
from support.process import Scripted
from support.schemas import validate
from support.scripted import ScriptedEngine, ask

pytestmark = pytest.mark.real

STORY = (
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Continue the story.",
    "How does it end?",
    "Write another story about the ship that brought the letter.",
    "Which of the two is sadder?",
)
PATIENCE_S = 3000.0
THOUGHT = 640  # tokens: Gemma 3 keeps its window of 512, and 128 rows beyond it


def told(run: Scripted, turns: int, *flags: str) -> list[dict[str, Any]]:
    """The turns of one `--turns --json` run of the program, as its schema has them."""
    file = run.work / "turns.txt"
    file.write_text("\n".join(STORY[:turns]))
    arguments = ("--turns", str(file), "--template", "chatml-think", "--temp", "0", "--json", *flags)
    ended = run.run(*arguments, patience_s=PATIENCE_S)
    assert (ended.code, ended.err) == (0, "")
    found: list[dict[str, Any]] = validate(ended.json)["turns"]
    assert len(found) == turns
    return found


def tokens_of(turns: list[dict[str, Any]]) -> list[int]:
    return [turn["usage"]["prompt_tokens"] for turn in turns]


def assert_cheap(log: list[Fed], tokens: list[int], extra: int, budget: int) -> None:
    """By the call log: each prompt costs the oracle's tokens and at most `extra` more, and holds no earlier thought.

    Of each thought of `budget` tokens a half is looked for, which is longer than any answer: small models repeat
    themselves, and an answer may well hold a sentence of its thought.
    """
    found = costs(log, tokens)
    assert all(cost.extra <= extra for cost in found), [cost.extra for cost in found]
    for index, (fed, length) in enumerate(zip(log, tokens, strict=True)):
        thought = fed.ids[length + 10 : length + 10 + budget // 2]
        assert len(thought) == budget // 2
        assert contains(fed.ids, thought)
        assert not any(contains(cost.prompt, thought) for cost in found[index + 1 :])


def assert_reused(turns: list[dict[str, Any]], kind: str) -> None:
    """What the program says of the turns after the first."""
    for stats in (turn["requests"][0] for turn in turns[1:]):
        assert stats["restore_kind"] == kind
        assert stats["divergence"] == "reasoning_dropped"
        disk = stats["cached_disk_tokens"]
        assert (disk > 0) if kind == "anchor" else (disk == 0)
        assert stats["cached_tokens"] > 0


def smollm2(folder: Path, work: Path, turns: int, budget: int, most: int, drop_live: str) -> None:
    run = Scripted(folder, work, **({"drop_live": drop_live} if drop_live else {}))
    said = told(run, turns, "--think-budget", str(budget), "--max-tokens", str(most))
    assert max(turn["usage"]["reasoning_tokens"] for turn in said) == budget
    assert_cheap(run.log(), tokens_of(said), 4, budget)
    assert_reused(said, "anchor" if drop_live else "live")


@pytest.mark.parametrize("drop_live", ["", "1"])
def test_smollm2_three_turns(smollm2_folder: ModelFolder, tmp_path: Path, drop_live: str) -> None:
    smollm2(smollm2_folder.path, tmp_path / "run", 3, 64, 74, drop_live)


@pytest.mark.slow
@pytest.mark.parametrize("drop_live", ["", "1"])
def test_smollm2_five_turns(smollm2_folder: ModelFolder, tmp_path: Path, drop_live: str) -> None:
    smollm2(smollm2_folder.path, tmp_path / "run", 5, 300, 400, drop_live)


@pytest.fixture
def gemma(gemma3_folder: ModelFolder, tmp_path: Path) -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine(gemma3_folder.path, tmp_path, template="chatml-think", think_min=str(THOUGHT))
    engine.unscript()
    yield engine
    engine.check()
    engine.close()
    assert engine.notices == []


def test_gemma3_two_turns(gemma: ScriptedEngine) -> None:
    """In this process, so that the second answer, of which only the prompt matters, can be short."""
    chat = gemma.chat()
    thinking = ThinkingOptions(budget=THOUGHT)
    first = ask(chat, STORY[0], RequestOptions(SamplingOptions(temp=0.0, max_tokens=THOUGHT + 8), thinking))
    assert first.stats.reasoning_tokens == THOUGHT
    second = ask(chat, STORY[1], RequestOptions(SamplingOptions(temp=0.0, max_tokens=1), thinking)).stats
    assert (second.restore_kind, second.divergence) == ("anchor", "reasoning_dropped")
    assert second.cached_disk_tokens > 0
    log = read_log(gemma.log)
    tokens = [first.stats.prompt_tokens, second.prompt_tokens]
    assert [cost.extra <= 4 for cost in costs(log, tokens)] == [True, True]
    thought = log[0].ids[tokens[0] + 10 : tokens[0] + 40]
    assert not contains(log[1].ids, thought)
    everything = [log[0], replace(log[1], restored=[], calls=[(0, log[1].ids[:-1]), (tokens[1] - 1, log[1].ids[-1:])])]
    assert costs(everything, tokens)[1].extra > 4, "planted: all of it prefilled"


@pytest.mark.slow
def test_gemma3_five_turns(gemma3_folder: ModelFolder, tmp_path: Path) -> None:
    run = Scripted(gemma3_folder.path, tmp_path / "run", think_min="640")
    said = told(run, 5, "--think-budget", "640", "--max-tokens", "760")
    assert [turn["usage"]["reasoning_tokens"] for turn in said] == [640] * 5
    assert_cheap(run.log(), tokens_of(said), 4, 640)
    assert_reused(said, "anchor")
