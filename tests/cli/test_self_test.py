"""`doctor --self-test`: right on this machine, red where the cache is wrong, and nothing of the user in its report."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import doctor as doctor_module
from mlxchat.cli import self_test
from mlxchat.cli.streams import Streams
from mlxchat.engine import self_test as comparisons
from mlxchat.engine.reuse import Reuse
from mlxchat.errors import OutputError, UsageError
from support.schemas import SCHEMAS, validate

pytestmark = pytest.mark.exact


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two families, fewer restores, and a shorter rewind."""
    monkeypatch.setenv("MLXCHAT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(comparisons, "FAMILIES", ("gemma3_text", "qwen3_5"))
    monkeypatch.setattr(comparisons, "SUFFIXES", (2,))
    monkeypatch.setattr(comparisons, "LONG", 600)
    monkeypatch.setattr(comparisons, "THOUGHT", 20)
    return tmp_path


def test_the_report(small: Path) -> None:
    out = small / "report.json"
    report = self_test.run_self_test(Streams(verbosity=-1), {"mlx": "1"}, out)
    assert report["passed"]
    assert validate(json.loads(out.read_text())) == report
    for family in report["families"].values():
        assert [(cell["restored"], cell["bit_equal"], cell["right"]) for cell in family["cells"]] == [
            (512, True, True),
            (700, True, True),
        ]
        assert family["rewind"]["cached_tokens"] == 596
    assert len(self_test.table(report)) == 3
    for private in (str(Path.home()), str(small), f"/{getpass.getuser()}/"):
        assert private not in out.read_text()
    assert not list((small / "home" / "cache").iterdir()), "nothing is left behind"


def test_the_schema_asks_for_every_number() -> None:
    definitions = SCHEMAS["self-test-1"]["$defs"]
    cell = comparisons.Cell(1, 1, 1, True, True, None, True).to_json()
    rewind = comparisons.Rewind(2, 1, 1.0, 2.0, 0, 0).to_json()
    for name, value in (("cell", cell), ("rewind", rewind)):
        assert set(definitions[name]["required"]) == set(definitions[name]["properties"]) == set(value)


def test_a_wrong_cache_is_found(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Reuse.begin

    def one_row_short(self: Reuse, sequence: Any, ids: Any, stats: Any, *more: Any) -> Any:
        live = real(self, sequence, ids, stats, *more)
        if stats.cached_disk_tokens:
            cache = next(leaf for leaf in live.caches if getattr(leaf, "keys", None) is not None)
            cache.keys = cache.keys * 0.5
        return live

    monkeypatch.setattr(Reuse, "begin", one_row_short)
    report = self_test.run_self_test(Streams(verbosity=-1), {}, small / "report.json")
    assert not validate(report)["passed"]
    assert not any(cell["right"] for family in report["families"].values() for cell in family["cells"])


def test_a_family_that_cannot_run_leaves_the_others_theirs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = comparisons.build

    def one_fails(model_type: str) -> Any:
        if model_type == "gemma3_text":
            raise RuntimeError("no such kernel")
        return build(model_type)

    monkeypatch.setattr(comparisons, "build", one_fails)
    report = self_test.run_self_test(Streams(verbosity=-1), {}, small / "report.json")
    assert report["families"]["gemma3_text"] == {"passed": False, "error": "RuntimeError: no such kernel"}
    assert report["families"]["qwen3_5"]["passed"]
    assert not validate(report)["passed"]
    assert "no such kernel" in "\n".join(self_test.table(report))


def test_what_cannot_be_written_and_what_means_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "FAMILIES", ())
    with pytest.raises(OutputError):
        self_test.run_self_test(Streams(verbosity=-1), {}, small / "absent" / "report.json")
    with pytest.raises(UsageError):
        doctor_module.doctor(out="x")


@pytest.mark.parametrize(
    ("system", "machine", "macos", "said"),
    [
        ("Darwin", "x86_64", "14.5", "an Intel one"),
        ("Darwin", "arm64", "13.6", "macOS 14 or newer"),
        ("Linux", "armv7l", "", "no build for Linux on armv7l"),
        ("Windows", "AMD64", "", "not on Windows"),
    ],
)
def test_wrong_machines_are_named(
    system: str, machine: str, macos: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.mac_ver", lambda: (macos, ("", "", ""), ""))
    assert said in "\n".join(doctor_module._machine_advice())


def test_a_right_machine_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("platform.mac_ver", lambda: ("15.1", ("", "", ""), ""))
    assert doctor_module._machine_advice() == []
    monkeypatch.setattr(doctor_module, "_LEAST_PYTHON", (9, 9))
    assert "Python 3.11 or newer" in doctor_module._machine_advice()[0]
