"""Replays on small random models: the oracle, equal logits, skipped requests, every kind of transcript."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mlxchat.cache.trie import SequenceTrie
from mlxchat.engine.messages import assistant, tool_result, user
from mlxchat.engine.messages import system as system_message
from mlxchat.transcripts.jobs import Supplied
from mlxchat.transcripts.model import Conversation, Request, Transcript
from mlxchat.transcripts.reading import read
from mlxchat.transcripts.replay import spread
from mlxchat.transcripts.settings import Settings
from support.logits import Logits
from support.replays import Ran, oracle_prefixes, run, transcript
from support.scripted import model_folder
from support.transcripts import FIXTURES

pytestmark = pytest.mark.exact

LONG = "The window, the layer, the block and the prefix. " * 12
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent-trace.jsonl"
NAMES = sorted(path.name for path in FIXTURES.iterdir())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model") / "tiny", "llama", "chatml", max_position_embeddings=30000)


def two_turns(first: str = LONG) -> Transcript:
    asked = (system_message(first), user("What is it?"))
    more = (*asked, assistant("Paris.", "Hm."), user("Sure?"))
    return transcript(Request(asked, assistant("Paris.", "Hm."), 1), Request(more, assistant("Yes."), 2))


@pytest.mark.parametrize("name", NAMES)
def test_every_fixture_replays_and_the_oracle_agrees(name: str, model: Path, tmp_path: Path) -> None:
    ran = run(model, tmp_path, read(FIXTURES / name), template="chatml-think")
    assert ran.ran, [row.why for row in ran.rows]
    for ours, theirs in oracle_prefixes(ran):
        assert ours == theirs
    for row in ran.ran:
        assert row.stats.prefill_tokens <= max(1, row.stats.prompt_tokens - row.stats.common_prefix_tokens) + 4
        assert row.planned.prompt_tokens == row.stats.prompt_tokens
        assert row.planned.common_prefix_tokens == row.stats.common_prefix_tokens
        assert row.planned.divergence == row.stats.divergence
        assert row.planned.answer_tokens == row.stats.completion_tokens


def test_planted_a_trie_that_invents_is_seen(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceTrie, "longest_match", lambda self, ids, image_hashes=(): len(ids))
    pairs = oracle_prefixes(run(model, tmp_path, two_turns()))
    assert any(ours != theirs for ours, theirs in pairs)


@pytest.mark.parametrize(("kind", "family"), [("qwen3", "qwen3"), ("gemma3_text", "gemma3"), ("qwen3_5", "qwen36")])
def test_the_plan_is_what_happens(kind: str, family: str, tmp_path: Path) -> None:
    """On global, local and recurrent layers the run reuses what the plan says that it could."""
    folder = model_folder(tmp_path / "model", kind, family)  # type: ignore[arg-type]
    ran = run(folder, tmp_path / "work", read(FIXTURES / "openai_conversations.jsonl"), compare=True)
    for row in ran.ran:
        assert row.planned.ideal_tokens <= row.stats.cached_tokens <= row.stats.common_prefix_tokens
        assert row.baseline is not None
        assert row.baseline.cached_tokens == 0
        assert row.baseline.prompt_tokens == row.stats.prompt_tokens
    assert all(ours == theirs for ours, theirs in oracle_prefixes(ran))


def efficiency(ran: Ran) -> float:
    cached = sum(row.stats.cached_tokens for row in ran.ran)
    return cached / sum(row.stats.common_prefix_tokens for row in ran.ran)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "family"), [("llama", "chatml"), ("gemma3_text", "gemma3")])
def test_the_example_on_a_small_model(kind: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit-equal logits at each prompt's end, cached and from nothing, over two tool loops and the rewind between."""
    folder = model_folder(tmp_path / "model", kind, family, max_position_embeddings=20000)  # type: ignore[arg-type]
    logits = Logits(monkeypatch)
    ran = run(folder, tmp_path / "work", read(EXAMPLE), template="chatml-think", compare=True, limit=10)
    for row, fed in zip(ran.ran, ran.log, strict=True):
        end = row.stats.prompt_tokens
        assert np.array_equal(logits.seen[fed.request, end], logits.seen[fed.request + 1, end])
    assert len(ran.ran) == 10
    assert {row.stats.divergence for row in ran.ran} == {"first", "append", "reasoning_dropped"}
    assert efficiency(ran) >= 0.99
    for row, (ours, theirs) in zip(ran.ran, oracle_prefixes(ran), strict=True):
        assert ours == theirs
        assert row.stats.prefill_tokens <= max(1, row.stats.prompt_tokens - theirs) + 4


def test_a_request_over_the_context_changes_nothing_for_the_next(model: Path, tmp_path: Path) -> None:
    plain = two_turns()
    first, second = plain.conversations[0].requests
    huge = Request((system_message(LONG), user(LONG * 9)), assistant("No."), 2)
    with_huge = Transcript("openai", "x", (Conversation("fix", (first, huge, second)),))
    settings = Settings(max_context=600)
    apart = run(model, tmp_path / "a", plain, settings)
    together = run(model, tmp_path / "b", with_huge, settings)
    assert [row.outcome for row in together.rows] == ["run", "skipped_too_long", "run"]
    assert together.rows[1].stats.prompt_tokens > 600
    assert together.ran[-1].stats.cached_tokens == apart.ran[-1].stats.cached_tokens > 0
    assert together.ran[-1].stats.divergence == apart.ran[-1].stats.divergence


def test_interleaved_conversations_find_each_others_prefix(model: Path, tmp_path: Path) -> None:
    """A sub-agent begins with its parent's system prompt; the parent goes on after it where it was."""
    head = (system_message(LONG), user("Fix it."))
    parent = (
        Request(head, assistant("Ask.", "Hm."), 1),
        Request((*head, assistant("Ask.", "Hm."), tool_result("Done.")), assistant("Good."), 3),
    )
    child = (Request((system_message(LONG), user("Look.")), assistant("Seen."), 2),)
    made = Transcript("openai", "x", (Conversation("p", parent), Conversation("c", child, "subagent", "p")))
    ran = run(model, tmp_path, made)
    assert [row.planned.job.conversation for row in ran.rows] == ["p", "c", "p"]
    assert all(ours == theirs for ours, theirs in oracle_prefixes(ran))
    assert ran.rows[1].stats.cached_tokens > 100
    assert ran.rows[2].stats.restore_kind in ("anchor", "block")
    assert (
        ran.rows[2].stats.prefill_tokens <= ran.rows[2].stats.prompt_tokens - ran.rows[2].stats.common_prefix_tokens + 4
    )


def test_an_answer_can_be_sampled_instead(model: Path, tmp_path: Path) -> None:
    ran = run(model, tmp_path, two_turns(), Settings(generate=3))
    assert [row.stats.completion_tokens <= 3 for row in ran.rows] == [True, True]


def test_a_request_without_an_answer_only_prefills(model: Path, tmp_path: Path) -> None:
    ran = run(model, tmp_path, transcript(Request((user("Well?"),), None, 1)))
    assert ran.rows[0].stats.completion_tokens == 0
    assert ran.rows[0].stats.ttft_ms > 0


def test_what_is_missing_can_be_supplied(model: Path, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    bare = transcript(Request((user("Well?"),), assistant("Yes."), 1))
    plain = run(model, tmp_path / "a", bare, template="chatml-think")
    more = run(model, tmp_path / "b", bare, supplied=Supplied("Be brief.", (tool,)), template="chatml-think")
    assert more.rows[0].stats.prompt_tokens > plain.rows[0].stats.prompt_tokens + 50


def test_a_request_that_the_template_refuses_is_named(tmp_path: Path, model: Path) -> None:
    refusing = tmp_path / "refuses.jinja"
    refusing.write_text(
        "{%- for m in messages -%}{%- if m.content == 'No.' -%}{{ raise_exception('not that one') }}{%- endif -%}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor -%}<|im_start|>assistant\n"
    )
    made = transcript(Request((user("No."),), assistant("x"), 1), Request((user("Yes."),), assistant("x"), 2))
    ran = run(model, tmp_path / "work", made, template=str(refusing))
    assert [row.outcome for row in ran.rows] == ["no_request", "run"]
    assert "not that one" in ran.rows[0].why


def test_the_cache_off_reuses_nothing(model: Path, tmp_path: Path) -> None:
    from mlxchat.engine.options import CacheOptions

    ran = run(model, tmp_path, two_turns(), cache=CacheOptions(enabled=False))
    assert [row.stats.cached_tokens for row in ran.rows] == [0, 0]
    assert ran.rows[1].stats.shortfall_reason == "off"


@pytest.mark.parametrize(
    ("count", "wanted"), [(None, {1, 2, 3, 4, 5}), (9, {1, 2, 3, 4, 5}), (2, {1, 5}), (3, {1, 3, 5}), (1, {5})]
)
def test_a_sample_is_spread(count: int | None, wanted: set[int]) -> None:
    assert spread([1, 2, 3, 4, 5], count) == wanted
