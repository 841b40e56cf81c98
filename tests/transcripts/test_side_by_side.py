"""Transcripts replayed side by side are what they are alone: the same tokens, fed and sampled, and the same reuse."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import assistant, user
from mlxchat.engine.messages import system as system_message
from mlxchat.errors import EngineFailed
from mlxchat.transcripts.model import Conversation, Request, Transcript
from mlxchat.transcripts.reading import read
from mlxchat.transcripts.settings import Settings
from mlxchat.transcripts.together import together
from support.replays import Ran, run
from support.scripted import model_folder
from support.transcripts import FIXTURES

pytestmark = pytest.mark.exact

TWO = ("atif.json", "swe_agent.traj")
SAME = ("turn", "prompt_tokens", "completion_tokens", "divergence")
REUSED = ("cached_tokens", "prefill_tokens", "common_prefix_tokens", "rewind_tokens", "shortfall_reason")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny", "llama", "chatml", max_position_embeddings=30000)


def facts(ran: Ran, name: str, reused: bool = True) -> list[dict[str, Any]]:
    """What each request of a transcript cost, but for its time.

    reused   what it found, too; of a conversation's first request never: that hangs on the others
    """
    found = []
    for row in ran.ran:
        if Path(row.planned.job.transcript).name == name:
            stats = row.stats.to_json()
            fields = (*SAME, *REUSED) if reused and row.planned.job.turn > 1 else SAME
            found.append((row.planned.job.number, {field: stats[field] for field in fields}))
    return [fact for _, fact in sorted(found, key=lambda one: one[0])]


def fed(ran: Ran) -> dict[tuple[str, int], list[int]]:
    """The ids of each request, prompt and answer, by its transcript and turn."""
    by_request = {one.request: list(one.ids) for one in ran.log}
    numbers = sorted(by_request)
    rows = sorted(ran.ran, key=lambda row: row.started_s)
    assert len(rows) == len(numbers)
    jobs = [(row.planned.job.transcript, row.planned.job.number) for row in rows]
    return {job: by_request[number] for job, number in zip(jobs, numbers, strict=True)}


@pytest.mark.parametrize("generate", [None, 4])
def test_two_transcripts_side_by_side_are_what_they_are_alone(
    generate: int | None, model: Path, tmp_path: Path
) -> None:
    files = [read(FIXTURES / name) for name in TWO]
    settings = Settings(parallel=2, generate=generate)
    beside = run(model, tmp_path / "both", together(files), settings, template="chatml-think")
    ids = [tuple(one) for one in fed(beside).values()]
    for name, file in zip(TWO, files, strict=True):
        alone = run(model, tmp_path / name, file, Settings(generate=generate), template="chatml-think")
        assert len(alone.ran) > 1
        # Of a sampled answer that isn't the recorded one, memory keeps a few more tokens than the disk does.
        assert facts(beside, name, generate is None) == facts(alone, name, generate is None)
        assert {tuple(one) for one in fed(alone).values()} <= set(ids)
    order = [row.planned.job.number for row in beside.ran]
    assert len(order) == len(set(order))


def test_planted_facts_that_differ_are_seen(model: Path, tmp_path: Path) -> None:
    alone = run(model, tmp_path / "a", read(FIXTURES / TWO[0]), template="chatml-think")
    other = run(model, tmp_path / "b", read(FIXTURES / TWO[0]), Settings(max_context=30000), template="chatml")
    assert facts(alone, TWO[0]) != facts(other, TWO[0])


def two_lanes(delay_ms: int = 0) -> Transcript:
    def lane(name: str) -> Conversation:
        head = (system_message(f"{name} of many words. " * 30), user("Well?"))
        more = (*head, assistant("Yes."), user("Sure?"))
        first = Request(head, assistant("Yes."), 1, delay_ms=delay_ms)
        return Conversation(name, (first, Request(more, assistant("Very."), 2)))

    return Transcript("openai", "x", (lane("a"), lane("b")))


def test_one_at_a_time_is_as_before(model: Path, tmp_path: Path) -> None:
    ran = run(model, tmp_path, two_lanes(), Settings(parallel=1))
    assert [(row.planned.job.conversation, row.planned.job.turn) for row in ran.rows] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("b", 2),
    ]
    ends = [(row.started_s, row.ended_s) for row in ran.rows]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))


def test_tools_take_their_time_with_real_time_only(model: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    ran = run(model, tmp_path / "a", two_lanes(800), Settings(parallel=2, real_time=True), compare=True)
    assert time.monotonic() - began > 0.8
    for name in "ab":
        first, second = (row for row in ran.rows if row.planned.job.conversation == name)
        assert second.started_s >= second.ready_s >= first.ended_s + 0.8
        assert second.baseline is not None
    hurried = run(model, tmp_path / "b", two_lanes(60_000), Settings(parallel=2))
    assert max(row.ended_s for row in hurried.rows) < 30


def test_what_fails_takes_its_own_conversation_along(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxchat.engine.turn import TurnBuilder

    real = TurnBuilder.start

    def start(self: TurnBuilder, request: Any, *more: Any) -> Any:
        if request.conversation == "a":
            raise RuntimeError("a fault on purpose")
        return real(self, request, *more)

    monkeypatch.setattr(TurnBuilder, "start", start)
    ran = run(model, tmp_path / "both", two_lanes(), Settings(parallel=2))
    outcomes = sorted((row.planned.job.conversation, row.planned.job.turn, row.outcome) for row in ran.rows)
    assert outcomes == [("a", 1, "failed"), ("a", 2, "failed"), ("b", 1, "run"), ("b", 2, "run")]
    why = {row.planned.job.turn: row.why for row in ran.rows if row.outcome == "failed"}
    assert "on purpose" in why[1]
    assert why[2] == "request 1 before it failed"
    only = Transcript("openai", "x", two_lanes().conversations[:1])
    with pytest.raises(EngineFailed, match="on purpose"):
        run(model, tmp_path / "one", only, Settings(parallel=2))
