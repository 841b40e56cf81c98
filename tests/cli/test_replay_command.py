"""`mlxchat replay` as a program: what it prints for people and programs, its exit codes, Ctrl-C."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import replay_run
from mlxchat.cli.replay_flags import ReplayFlags, read_tools
from mlxchat.cli.replay_screen import ReplayScreen
from mlxchat.cli.streams import Streams
from mlxchat.engine.sanitize import sanitize
from mlxchat.errors import DataError, InputError, UsageError
from support.fake_tty import Tty
from support.process import Scripted, finished
from support.run_program import Ended, run_program
from support.schemas import validate
from support.scripted import model_folder
from support.transcripts import FIXTURES

pytestmark = pytest.mark.plain

TWO = FIXTURES / "openai_conversations.jsonl"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent-trace.jsonl"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ended]:
    folder = tmp_path_factory.mktemp("replay")
    model_folder(folder / "model", "llama", "chatml", max_position_embeddings=20000)

    def run(*more: str, **environ: str) -> Ended:
        program = Scripted(folder / "model", folder / "work")
        program._fixed.remove("--no-save")
        program.environment |= environ
        return program.run("replay", *more, "--template", "chatml-think")

    return run


Program = Callable[..., Ended]


def test_json_is_what_the_schema_says(program: Program, tmp_path: Path) -> None:
    report = tmp_path / "out.html"
    ended = program(str(TWO), "--json", "--compare", "--report", str(report), "--min-efficiency", "0.9")
    assert ended.code == 0, ended.err
    out = validate(ended.json)
    assert (out["format"], out["model"], out["transcript"]) == ("openai", "model", str(TWO))
    assert [turn["outcome"] for turn in out["turns"]] == ["run"] * 4
    assert {turn["conversation"] for turn in out["turns"]} == {t["conversation"] for t in out["turns"]}
    for turn in out["turns"]:
        assert turn["prompt_tokens"] == turn["cached_tokens"] + turn["prefill_tokens"]
        assert turn["baseline_ttft_ms"] > 0
    summary = out["summary"]
    assert summary["turns"] == 4
    assert summary["hit_rate"] == pytest.approx(summary["cached_tokens"] / summary["prompt_tokens"])
    common = sum(turn["common_prefix_tokens"] for turn in out["turns"])
    assert summary["efficiency"] == pytest.approx(summary["cached_tokens"] / common)
    assert summary["disk"]["bytes_written"] > 0
    assert out["baseline"]["requests"] == 4
    assert {"mlxchat", "mlx", "mlx-lm"} <= set(out["versions"])
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_jsonl_is_a_line_per_request(program: Program) -> None:
    ended = program(str(TWO), "--jsonl", "--limit-turns", "3", "--compare-sample", "1")
    lines = [validate(line) for line in ended.lines]
    assert [line["type"] for line in lines] == ["session", "turn", "turn", "turn", "done"]
    assert [line["seq"] for line in lines] == list(range(5))
    assert lines[-1]["baseline"]["requests"] == 1
    assert "baseline_ttft_ms" in lines[1]


def test_a_plan_for_a_model_that_is_not_here_says_how_to_get_it() -> None:
    ended = run_program("replay", str(TWO), "--plan", "-m", "nobody/has-this", fake=False)
    assert ended.code == 69
    assert "--offline" not in ended.err
    assert "mlxchat models pull" in ended.err


def test_a_plan_loads_no_weights(program: Program) -> None:
    ended = program(str(TWO), "--plan", "--json", "--prefill-rate", "100")
    assert ended.code == 0, ended.err
    out = validate(ended.json)
    assert out["schema"] == "mlxchat.replay-plan/1"
    assert all(turn["ttft_ms"] == pytest.approx(10 * turn["prefill_tokens"]) for turn in out["turns"])
    assert validate(program(str(TWO), "--plan", "--json").json)["turns"][0]["ttft_ms"] is None
    lines = [validate(line)["type"] for line in program(str(TWO), "--plan", "--jsonl").lines]
    assert lines == ["session", *["turn"] * 4, "done"]


def test_the_table_in_a_pipe_is_plain(program: Program) -> None:
    ended = program(str(TWO), COLUMNS="100")
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("transcript  openai_conversations.jsonl · openai · 2 conversations, 4 requests")
    assert sum("──" in line for line in lines) == 2
    assert any(line.startswith("total       4 requests") for line in lines)
    assert "\x1b" in program(str(TWO), "--color", "always").out


def test_a_gate_under_its_bar_is_exit_code_3(program: Program) -> None:
    ended = program(str(TWO), "--json", "--min-efficiency", "0.5", "--no-cache")
    assert ended.code == 3
    assert ended.json["summary"]["efficiency"] == 0
    assert "--min-efficiency" in ended.err


def test_requests_over_the_context_are_skipped_and_named(program: Program) -> None:
    ended = program(str(EXAMPLE), "--plan", "--max-context", "2000", "--json")
    outcomes = [turn["outcome"] for turn in ended.json["turns"]]
    assert set(outcomes) == {"run", "skipped_too_long"}
    assert all("2,000" in t["reason"] for t in ended.json["turns"] if t["outcome"] != "run")
    none = program(str(EXAMPLE), "--max-context", "10")
    assert none.code == 65
    assert "no request can run" in none.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("absent.jsonl",), 66),
        ((str(TWO), "--format", "nonsense"), 2),
        ((str(TWO), "--json", "--jsonl"), 2),
        ((str(TWO), "--plan", "--compare"), 2),
        ((str(TWO), "--temp", "1"), 2),
        ((str(TWO), "--report", "/no/such/folder/x.html"), 74),
        ((str(TWO), "--tool-schemas", "absent.json"), 66),
    ],
)
def test_what_is_wrong_has_its_exit_code(program: Program, arguments: tuple[str, ...], code: int) -> None:
    ended = program(*arguments)
    assert ended.code == code, ended.err
    assert len(ended.error_lines) <= 2
    if "--json" not in arguments:
        failed = program(*arguments, "--json")
        assert (failed.code, failed.json["error"]["hint"] != "") == (code, True)


def test_nothing_to_read_and_nothing_to_replay(program: Program, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no json\n")
    assert program(str(tmp_path / "x.jsonl")).code == 65
    (tmp_path / "y.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}))
    ended = program(str(tmp_path / "y.jsonl"), "--json")
    assert ended.code in (0, 65)


def test_what_is_missing_can_be_supplied(program: Program, tmp_path: Path) -> None:
    (tmp_path / "system.md").write_text("You answer in one word. " * 20)
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "look", "parameters": {"type": "object"}}]))
    codex = FIXTURES / "codex"
    plain = program(str(codex), "--plan", "--json").json
    supplied = ("--system", f"@{tmp_path / 'system.md'}", "--tool-schemas", str(tmp_path / "tools.json"))
    more = program(str(codex), "--plan", "--json", *supplied).json
    assert more["summary"]["prompt_tokens"] > plain["summary"]["prompt_tokens"]
    assert plain["missing"]["parts"]
    padded = program(str(codex), "--plan", "--json", "--pad", "recorded", "--max-context", "200000").json
    assert any(turn["padded_tokens"] for turn in padded["turns"])
    table = program(str(codex), "--plan", "--pad", "recorded", *supplied)
    assert "supplied    system prompt, tool schemas, synthetic text" in table.out
    assert "missing" in table.out


def test_ctrl_c_prints_the_summary_so_far(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", "llama", "chatml", max_position_embeddings=20000)
    program = Scripted(tmp_path / "model", tmp_path / "work")
    program._fixed.remove("--no-save")
    program.gate.hold("3.prefill.1")
    running = program.start("replay", str(TWO), "--json", "--prefill-rate", "100")
    program.gate.wait_held()
    running.send_signal(signal.SIGINT)
    ended = finished(running)
    assert ended.code == 130
    out = validate(ended.json)
    assert [turn["request"] for turn in out["turns"]] == [1, 2]
    assert out["summary"]["turns"] == 2


def test_help_needs_no_model() -> None:
    ended = run_program("replay", "--help", fake=False)
    assert ended.code == 0
    for flag in ("--feed", "--generate", "--format", "--system", "--tool-schemas", "--pad", "--plan", "--compare"):
        assert flag in ended.out
    for flag in ("--compare-sample", "--report", "--with-text", "--json", "--jsonl", "--min-efficiency"):
        assert flag in ended.out
    for flag in ("--limit-turns", "--max-context", "--template", "--prefill-rate"):
        assert flag in ended.out


# -- in this process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ['{"tools": [{"name": "a"}]}', '[{"type": "function", "function": {"name": "a"}}]'])
def test_tools_come_in_either_layout(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.json").write_text(content)
    (tool,) = read_tools(str(tmp_path / "t.json"))
    assert tool["function"]["name"] == "a"


@pytest.mark.parametrize("content", ["nonsense", "3", '{"a": 1}', "[3]"])
def test_tools_that_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(DataError):
        read_tools(str(tmp_path / "t.json"))


def test_a_report_that_cant_be_written_is_known_before_the_run(tmp_path: Path) -> None:
    replay_run.check_report(None)
    replay_run.check_report(str(tmp_path / "x.html"))
    for name, why in ((tmp_path, "Is a directory"), (tmp_path / "no" / "x.html", f"there is no folder {tmp_path}/no")):
        with pytest.raises(replay_run.ReportError, match=f"can't write {name}: {why}"):
            replay_run.check_report(str(name))


def test_flags_that_mean_nothing_alone() -> None:
    for flags in ({"with_text": True}, {"seed": 1}):
        with pytest.raises(UsageError):
            ReplayFlags(["x"], **flags).check()  # type: ignore[arg-type]
    with pytest.raises(InputError):
        ReplayFlags(["x"], system="@absent").supplied()
    ReplayFlags(["x"], with_text=True, report="y").check()


def test_a_terminal_gets_a_bar_and_the_same_table() -> None:
    from mlxchat.cli.replay_output import Opening
    from mlxchat.cli.replay_words import Subject
    from mlxchat.transcripts.heading import Coming, Share
    from support.replays import result, transcript

    def shown(stdout: Any, stderr: Any) -> str:
        made = result()
        planned = [one.planned for one in made.rows]
        subject = Subject(transcript(), [one.job for one in planned], "m", "t", 8192)
        screen = ReplayScreen(Streams("never", 0, stdout, stderr), "never", verbose=False, width=100)
        screen.begin(Opening(subject, Share.of(planned, ()), Coming.of(planned, 10.0), compared=4))
        for row in made.rows:
            screen.row(row)
        screen.end(made, 0)
        text: str = stdout.getvalue()
        return text

    piped = shown(io.StringIO(), io.StringIO())
    terminal = Tty()
    live = shown(terminal, Tty())
    assert "replaying" in live
    assert "replaying" not in piped
    seen = sanitize(live)
    assert [line for line in piped.splitlines() if line not in seen] == []
