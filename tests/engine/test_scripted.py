"""The scripted model's own two halves."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import mlx.core as mx
import pytest
from mlxchat.engine.scripted import Gate, Script
from mlxchat.engine.switches import Switches
from mlxchat.errors import DataError
from support.scripted import GateFolder, wait_until, write_script

pytestmark = pytest.mark.exact

END = 99
LOGITS = mx.array([[0.0, 1.0]])


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def drawn(script: Script, count: int) -> list[int]:
    sample = script.sampler()
    return [int(sample(LOGITS).item()) for _ in range(count)]


def test_a_reply_per_request_and_the_last_one_again(tmp_path: Path) -> None:
    script = Script(write_script(tmp_path / "s", "AB", {"ids": [7]}), encode, END)
    assert drawn(script, 4) == [65, 66, END, END]
    assert drawn(script, 2) == [7, END]
    assert drawn(script, 2) == [7, END]


def test_an_open_reply_has_no_end_token_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "s").write_text(json.dumps({"text": "A", "open": True}) + "\n\n")
    assert Script(tmp_path / "s", encode, END)._replies == [[65]]


def test_an_empty_script(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        Script(tmp_path / "s", encode, END)


def test_the_gate_holds_one_point_until_released(tmp_path: Path) -> None:
    folder = GateFolder(tmp_path / "gate")
    gate, passed = Gate(folder.folder), []
    folder.hold("1.token.2")

    def run() -> None:
        for point in ("1.token.1", "1.token.2", "1.token.3"):
            gate.reach(point, lambda: False)
            passed.append(point)

    thread = threading.Thread(target=run)
    thread.start()
    folder.wait_held()
    assert passed == ["1.token.1"]
    folder.hold("1.token.3")
    folder.wait_held()
    assert passed == ["1.token.1", "1.token.2"]
    folder.release()
    thread.join(10)
    assert len(passed) == 3


def test_a_cancelled_request_passes_the_gate(tmp_path: Path) -> None:
    folder = GateFolder(tmp_path / "gate")
    folder.hold("1.prefill.1")
    cancelled = threading.Event()
    thread = threading.Thread(target=Gate(folder.folder).reach, args=("1.prefill.1", cancelled.is_set))
    thread.start()
    folder.wait_held()
    cancelled.set()
    thread.join(10)
    assert not thread.is_alive()


def test_no_gate_holds_nothing() -> None:
    Gate(None).reach("1.token.1", lambda: False)


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.scripted.PATIENCE_S", 0.05)
    with pytest.raises(AssertionError, match="in vain for rain"):
        wait_until(lambda: False, "rain")


def test_switches_are_off_unless_set() -> None:
    assert Switches.read({}) == Switches()
    assert Switches.read({"MLXCHAT_TEST_DROP_LIVE": "0", "MLXCHAT_TEST_THINK_MIN": ""}) == Switches()
    assert Switches.read(
        {
            "MLXCHAT_TEST_CALL_LOG": "/l",
            "MLXCHAT_TEST_DROP_LIVE": "1",
            "MLXCHAT_TEST_THINK_MIN": "64",
            "MLXCHAT_TEST_SCRIPT": "/s",
            "MLXCHAT_TEST_GATE": "/g",
        }
    ) == Switches(Path("/l"), True, 64, Path("/s"), Path("/g"))
