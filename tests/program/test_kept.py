"""The program with --cache-persist: chat, exit, go on in a new process; killed at any moment; deleted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.oracle import oracle_new
from support.process import Scripted
from support.scripted import model_folder

pytestmark = pytest.mark.plain

SYSTEM = "The window, the layer, the block and the prefix. " * 60
THOUGHT = "The user asks.\n</think>\n\nParis."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("kept") / "model", "gemma3_text", "qwen36")


def stats(out: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(out)
    [request] = value["requests"]
    return dict(request)


def test_a_resumed_session_starts_warm_and_leaves_nothing_when_removed(model: Path, tmp_path: Path) -> None:
    program = Scripted(model, tmp_path, THOUGHT, saves=True)
    first = program.run("What is the capital? " + SYSTEM, "-s", SYSTEM, "--cache-persist", "--json")
    session, fed = first.json["session_id"], program.log()
    program.log_file.unlink()  # the next process numbers its requests from one again
    second = program.run("-c", "Sure?", "--cache-persist", "--json")
    assert second.json["session_id"] == session
    now = stats(second.out)
    assert now["restore_kind"] in ("anchor", "block")
    [again] = program.log()
    prompt = again.prompt(now["prompt_tokens"])
    assert again.prefilled(now["prompt_tokens"]) <= oracle_new(prompt, [one.ids for one in fed]) + 4
    assert second.json["cache"]["store"]["kept"]
    assert second.json["cache"]["store"]["damaged"] == 0
    subprocess.run(
        [sys.executable, "-m", "mlxchat", "sessions", "rm", session],
        env=program.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert list(program.kv.iterdir()) == [], "the folder was named with --cache-dir, and is remembered"


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_right_answer(model: Path, tmp_path: Path) -> None:
    program = Scripted(model, tmp_path, THOUGHT, saves=True)
    right = program.run("What is the capital? " + SYSTEM, "-s", SYSTEM, "--temp", "0", "--json").json["text"]
    for number in range(20):
        running = program.start("What is the capital? " + SYSTEM, "-s", SYSTEM, "--cache-persist", "--json")
        time.sleep(1.0 + 0.4 * number)
        running.kill()
        running.communicate()
        again = program.run("What is the capital? " + SYSTEM, "-s", SYSTEM, "--cache-persist", "--json")
        assert again.code == 0
        assert again.json["text"] == right
        assert again.json["cache"]["store"]["damaged"] == 0
