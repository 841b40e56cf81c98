"""Replays with a real tokenizer: every sample on a small random model, the example on the real ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mlxchat.engine.models import ModelFolder
from support import tiny_models
from support.oracle import read_log
from support.process import Scripted
from support.replays import oracle_of, oracle_prefixes, run
from support.schemas import validate
from support.transcripts import SAMPLES, sample

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent-trace.jsonl"
NAMES = (
    "claude-code/agtrace_claude_session.jsonl",
    "codex/agtrace_codex_session.jsonl",
    "gptme/conversation.jsonl",
    "llm-logs/llm_0.36_logs.json",
    "mini-swe-agent/github_issue.traj.json",
    "openai-chat/aa-mini-library-01.jsonl",
    "swe-agent/marshmallow-1867_function_calling.traj",
)


def test_no_sample_is_left_out() -> None:
    there = [path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*")] if SAMPLES.is_dir() else NAMES
    assert sorted(there) == sorted(NAMES)


@pytest.fixture(scope="module")
def small(smollm2_folder: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small random layers behind SmolLM2's tokenizer, with room for the longest sample."""
    folder = tmp_path_factory.mktemp("small") / "small"
    size = {"num_hidden_layers": 2, "vocab_size": 49152, "max_position_embeddings": 65536}
    tiny_models.save(folder, "llama", **size)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(smollm2_folder.path / name, folder / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 2}))
    return folder


@pytest.mark.parametrize("name", [*NAMES[:-1], pytest.param(NAMES[-1], marks=pytest.mark.slow)])
def test_every_sample_replays_and_the_oracle_agrees(name: str, small: Path, tmp_path: Path) -> None:
    ran = run(small, tmp_path, sample(name), template="chatml-think")
    assert [row.outcome for row in ran.rows] == ["run"] * len(ran.rows)
    for row, (ours, theirs) in zip(ran.ran, oracle_prefixes(ran), strict=True):
        assert ours == theirs
        assert row.stats.prefill_tokens <= max(1, row.stats.prompt_tokens - theirs) + 4


@pytest.mark.slow
@pytest.mark.parametrize("alias", ["smollm2", "gemma3-270m"])
def test_the_example_on_the_real_models(
    alias: str, smollm2_folder: ModelFolder, gemma3_folder: ModelFolder, tmp_path: Path
) -> None:
    folder = {"smollm2": smollm2_folder, "gemma3-270m": gemma3_folder}[alias]
    program = Scripted(folder.path, tmp_path)
    program._fixed.remove("--no-save")
    report = tmp_path / "out.html"
    words = ("--template", "chatml-think", "--compare", "--report", str(report), "--json", "--min-efficiency", "0.99")
    ended = program.run("replay", str(EXAMPLE), *words, patience_s=3600)
    assert ended.code == 0, ended.err
    out = validate(ended.json)
    assert out["summary"]["efficiency"] >= 0.99
    assert out["baseline"]["ratio"] > 1
    assert len(out["turns"]) >= 12
    prompts = [turn["prompt_tokens"] for turn in out["turns"]]
    for turn, longest in zip(out["turns"], oracle_of(read_log(program.log_file), prompts), strict=True):
        assert turn["common_prefix_tokens"] == longest
        assert turn["prefill_tokens"] <= max(1, turn["prompt_tokens"] - longest) + 4
    assert report.read_text(encoding="utf-8").count("<svg") == 5
