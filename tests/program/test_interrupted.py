"""Ctrl-C in the real program, held where a test wants it: the part is kept, and the next turn costs what is new."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.oracle import Fed, costs
from support.process import Scripted, finished
from support.schemas import validate
from support.scripted import model_folder
from support.terminal import CTRL_C, ENTER, Terminal
from support.tiny_tokenizer import load

pytestmark = pytest.mark.exact

SYSTEM = "The window, the layer, the block and the prefix. " * 50
THOUGHT = "The user asks a question.\n</think>\n\n"
REPLIES = (
    THOUGHT + "Paris is the capital.",
    "Never drawn.",
    THOUGHT + "Stopped while thinking.",
    THOUGHT + "Hello world, this is a test.",
    THOUGHT + "Yes.",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("interrupted") / "model", "qwen3", "qwen36")


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Tokens of each reply."""
    tokenizer = load(tmp_path_factory.mktemp("tokenizer"), "qwen36")
    return [len(tokenizer.encode(reply, add_special_tokens=False)) for reply in REPLIES]


def conversation(run: Scripted, *more: str) -> str:
    """Five requests: whole, stopped in its prompt, the same message stopped in its thought, in its answer, whole.

    Returns what was on the screen at the end.
    """
    system = run.work / "system.txt"
    system.write_text(SYSTEM)
    with Terminal(run.arguments("-s", f"@{system}", "--no-ahead", *more), run.environment) as terminal:
        terminal.wait_for_prompt()
        run.gate.hold("2.prefill.2")
        terminal.line("What is the capital of France?")
        terminal.wait_for(r"Paris is the capital\.[^>]*\n>$")
        terminal.line("Is it a question?")
        run.gate.wait_held()
        terminal.send(CTRL_C)
        terminal.wait_for("before a word was said")
        terminal.wait_for_prompt("Is it a question?")
        run.gate.hold("3.token.5")
        terminal.send(ENTER)
        run.gate.wait_held()
        os.kill(terminal.pid, signal.SIGINT)
        terminal.wait_for(r"what was said is kept\)\n>$", after="Is it a question?")
        run.gate.hold("4.token.14")
        terminal.line("And the answer?")
        run.gate.wait_held()
        terminal.send(CTRL_C)
        terminal.wait_for(r"what was said is kept\)\n>$", after="And the answer?")
        run.gate.release()
        terminal.line("Sure?")
        terminal.wait_for(r"Yes\.[^>]*\n>$", after="Sure?")
        shown = terminal.text
        terminal.line("/exit")
        assert terminal.wait_for_exit() == 0
    return shown


def prompt_lengths(log: list[Fed], lengths: list[int]) -> list[int]:
    """Known from the script: what was fed, less the reply; 0 for the request that was stopped in its prompt."""
    ends = [lengths[0] + 1, None, 4, 13, lengths[4] + 1]
    return [0 if end is None else len(fed.ids) - end for fed, end in zip(log, ends, strict=True)]


@pytest.mark.parametrize("drop_live", [False, True])
def test_no_turn_after_an_interruption_prefills_the_whole_prompt(
    model: Path, lengths: list[int], tmp_path: Path, drop_live: bool
) -> None:
    run = Scripted(model, tmp_path / "run", *REPLIES, **({"drop_live": "1"} if drop_live else {}))
    shown = conversation(run)
    assert "Hello" in shown, "the part of the answer that was said"
    log = run.log()
    found = costs(log, prompt_lengths(log, lengths))
    assert [cost.request for cost in found] == [1, 3, 4, 5]
    assert found[0].prefilled == len(found[0].prompt) > 650
    assert [cost.extra <= 4 for cost in found] == [True] * 4
    kinds = [fed.kind for fed in log]
    assert set(kinds[1:]) == ({"anchor"} if drop_live else {"live"})
    assert len(log[1].ids) < len(found[1].prompt), "stopped inside the prompt"
    assert log[1].calls, "and not before its first call"


def test_planted_nothing_is_kept(model: Path, lengths: list[int], tmp_path: Path) -> None:
    """The same conversation without a cache: the oracle sees a full prefill after each interruption."""
    run = Scripted(model, tmp_path / "run", *REPLIES)
    conversation(run, "--no-cache")
    log = run.log()
    found = costs(log, prompt_lengths(log, lengths))
    assert [cost.extra > 600 for cost in found] == [False, True, True, True]


def test_sigint_in_turns_keeps_what_there_is(model: Path, tmp_path: Path) -> None:
    run = Scripted(model, tmp_path / "run", THOUGHT + "One.", THOUGHT + "Hello world, this is a test.")
    (run.work / "turns.txt").write_text("first\nsecond\nthird\n")
    run.gate.hold("2.token.14")
    process = run.start("--turns", "turns.txt", "--json")
    run.gate.wait_held()
    process.send_signal(signal.SIGINT)
    ended = finished(process)
    assert (ended.code, ended.err) == (130, "")
    turns = validate(ended.json)["turns"]
    assert [turn["finish_reason"] for turn in turns] == ["stop", "interrupted"]
    assert turns[1]["text"]
    assert "Hello world, this is a test.".startswith(turns[1]["text"])
    assert turns[1]["usage"]["completion_tokens"] == 13
