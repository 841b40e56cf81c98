"""A recorded answer, fed: the ids it gives, the calls it takes, and that it counts as a reply in every respect."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mlxchat.engine import template_files
from mlxchat.engine.chat import next_number
from mlxchat.engine.events import TurnDone
from mlxchat.engine.feeding import Feeding
from mlxchat.engine.messages import Message, TextPart, ToolCall, assistant, tool_result, user
from mlxchat.engine.messages import system as system_message
from mlxchat.engine.options import RequestOptions
from mlxchat.engine.prompts import PromptRenderer
from mlxchat.engine.recorded import Feed, Recorded, ReplyIds
from mlxchat.engine.request import Request
from support.logits import Logits
from support.oracle import costs, read_log
from support.replies import REASONING, TOOLS, WITH_TOOLS, generate, spell
from support.scripted import ScriptedEngine, done, failed, model_folder, options
from support.tiny_tokenizer import FAMILIES, Family

pytestmark = pytest.mark.exact

LONG = "The window, the layer, the block and the prefix. " * 20
THOUGHT = "The user asks a question about the cache and the window. " * 12
OPTIONS = RequestOptions()
ONE = options(max_tokens=1)


def call(city: str) -> Message:
    return Message("assistant", (), reasoning=THOUGHT, tool_calls=(ToolCall("c1", "get_weather", {"city": city}),))


@pytest.fixture(scope="module", params=["qwen3", "gemma3_text", "qwen3_5"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    folder = tmp_path_factory.mktemp(request.param)
    made = ScriptedEngine(model_folder(folder / "model", request.param), folder / "work")
    yield made
    made.check()
    made.close()
    assert made.notices == []


def feed(
    engine: ScriptedEngine,
    messages: list[Message],
    answer: Message | None,
    how: Feed = "prefill",
    name: str = "a",
    **more: Any,
) -> TurnDone:
    recorded = None if answer is None else Recorded(answer, how)
    wanted = Request(next_number(), name, tuple(messages), more.pop("options", OPTIONS), recorded=recorded, **more)
    engine.engine.submit(wanted)
    events = []
    while not events or not isinstance(events[-1], TurnDone):
        events.append(wanted.events.get())
        assert type(events[-1]).__name__ != "TurnFailed", events[-1]
    return done(events)


# -- ids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_are_what_a_model_would_have_sampled(tokenizer_of: Callable[[Family], Any], family: Family) -> None:
    """The same answer sampled in canonical tokens: the recorded one gives the same ids behind the same prompt."""
    tokenizer = tokenizer_of(family)
    renderer = PromptRenderer(tokenizer)
    ends = frozenset(tokenizer.eos_token_ids) | frozenset(renderer.turn_end_ids)
    tools = TOOLS if family in WITH_TOOLS else []
    prompt = renderer.render([user("What is it?")], tools=tools)
    reasoning = "Let me think." if family in REASONING else ""
    words = spell(family, prompt.reasoning_open, reasoning, "Paris is the capital.")
    steady = random.Random()
    steady.random = lambda: 1.0  # type: ignore[method-assign]  # never cuts a word in two
    sampled = generate(renderer, tokenizer, prompt, words, steady)
    assert sampled.generated is not None
    answer = assistant("Paris is the capital.", reasoning or None)
    reply = renderer.reply(prompt, [user("What is it?")], answer, ends, tools=tools)
    said = renderer.encoder.decode(reply.ids)
    assert "Paris is the capital." in said
    assert not ends & set(reply.ids)
    closed = bool(prompt.scaffold_text) and not prompt.reasoning_open
    assert (reasoning in said) is (not closed)
    if not closed:
        assert reply.mismatched == 0
        assert said == renderer.encoder.decode(sampled.generated.ids)
        assert reply.ids == sampled.generated.ids


def test_a_scaffold_that_history_lacks_is_counted(tokenizer_of: Callable[[Family], Any]) -> None:
    """The built-in template opens a thought; an answer without one is rendered without."""
    tokenizer = tokenizer_of("chatml")
    renderer = PromptRenderer(tokenizer, template_files.resolve("chatml-think", tokenizer)[0])
    messages = [user("Well?")]
    prompt = renderer.render(messages)
    assert prompt.scaffold_ids
    plain = renderer.reply(prompt, messages, assistant("Yes."), renderer.turn_end_ids)
    assert plain.mismatched == len(prompt.scaffold_ids)
    assert renderer.encoder.decode(plain.ids) == "Yes."
    thought = renderer.reply(prompt, messages, assistant("Yes.", "Hm."), renderer.turn_end_ids)
    assert thought.mismatched == 0
    assert renderer.encoder.decode(thought.ids) == "Hm.\n</think>\n\nYes."


def test_planted_an_end_token_left_in_is_seen(tokenizer_of: Callable[[Family], Any]) -> None:
    renderer = PromptRenderer(tokenizer_of("chatml"))
    prompt = renderer.render([user("Well?")])
    kept = renderer.reply(prompt, [user("Well?")], assistant("Yes."), frozenset())
    cut = renderer.reply(prompt, [user("Well?")], assistant("Yes."), renderer.turn_end_ids)
    assert kept.ids[: len(cut.ids)] == cut.ids
    assert len(kept.ids) > len(cut.ids)


def test_an_answer_of_nothing_gives_nothing(tokenizer_of: Callable[[Family], Any]) -> None:
    renderer = PromptRenderer(tokenizer_of("chatml"))
    prompt = renderer.render([user("Well?")])
    assert renderer.reply(prompt, [user("Well?")], assistant(""), renderer.turn_end_ids).ids == ()


def test_calls_end_at_block_edges_or_after_one_token() -> None:
    ids = tuple(range(600))
    feeding, at, sizes = Feeding(ReplyIds(ids), "prefill", 10_000), 700, []
    while taken := feeding.take(at):
        at += len(taken)
        sizes.append(len(taken))
    assert sizes == [68, 256, 256, 20]
    single = Feeding(ReplyIds(ids[:3]), "decode", 2)
    assert [single.take(0), single.take(1), single.take(2)] == [(0,), (1,), ()]
    assert single.cut
    assert not feeding.cut


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["prefill", "decode"])
def test_a_tool_loop_costs_what_is_new(engine: ScriptedEngine, how: Feed) -> None:
    before = len(read_log(engine.log))
    tools = RequestOptions(tools=tuple(TOOLS))
    messages = [system_message(f"{how} {LONG}"), user("What is the weather?")]
    turns = []
    for answer, then in (
        (call("Paris"), tool_result("Sun.", "c1")),
        (call("Rome"), tool_result("Rain.", "c1")),
        (assistant("Sun and rain.", THOUGHT), user("And tomorrow?")),
        (assistant("Who knows.", THOUGHT), user("You?")),
        (assistant("No."), user("Why?")),
    ):
        turns.append(feed(engine, messages, answer, how, how, options=tools))
        messages += [answer, then]
    log = read_log(engine.log)
    prompts = [turn.stats.prompt_tokens for turn in turns]
    if how == "decode":  # the oracle's own check: decode feeds one id at a time
        found = costs(log, [0] * before + prompts)
        assert [cost.extra <= 4 for cost in found] == [True] * 5, [cost.extra for cost in found]
        assert [cost.prefilled for cost in found] == [turn.stats.prefill_tokens for turn in turns]
    for turn, fed in zip(turns, log[before:], strict=True):
        calls = [len(ids) for start, ids in fed.calls if start >= turn.stats.prompt_tokens]
        assert max(calls) <= (1 if how == "decode" else 256)
        assert sum(calls) == turn.stats.completion_tokens
        extra = turn.stats.prefill_tokens - max(1, turn.stats.prompt_tokens - turn.stats.common_prefix_tokens)
        assert extra <= 4
    assert [turn.stats.divergence for turn in turns[1:4]] == ["append", "append", "reasoning_dropped"]
    assert turns[0].stats.reasoning_tokens > 100
    assert turns[0].message == call("Paris")
    assert {turn.finish_reason for turn in turns} == {"stop"}


def test_a_reply_is_the_same_however_it_is_fed(engine: ScriptedEngine) -> None:
    ids = []
    for how in ("prefill", "decode"):
        name = f"same {how}"
        turn = feed(engine, [system_message(LONG), user("Same?")], assistant(LONG), how, name)  # type: ignore[arg-type]
        live = engine.engine.call(lambda m, name=name: m.loop.sequences[name].live.ids.tolist())
        ids.append(live)
        assert turn.stats.ttft_ms > 0
    assert ids[0] == ids[1]


def test_the_first_token_is_the_same_uncached(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit-equal logits at each prompt's end, though the cached run fed 256-token calls and rewound them."""
    logits = Logits(monkeypatch)
    messages = [system_message(f"logits {LONG}"), user("What is it?")]
    before = len(read_log(engine.log))
    for number, answer in enumerate([assistant(LONG, THOUGHT), assistant("Yes.", THOUGHT), assistant(LONG)]):
        turn = feed(engine, messages, answer, name="logits")
        cached = max(request for request, _ in logits.seen)
        alone = feed(engine, messages, None, uncached=True, name="logits", options=ONE)
        end = turn.stats.prompt_tokens
        assert np.array_equal(logits.seen[cached, end], logits.seen[cached + 1, end])
        assert alone.stats.cached_tokens == 0
        assert (turn.stats.cached_tokens > 100) is (number > 0)
        messages += [answer, user("And then?")]
    assert len(read_log(engine.log)) == before + 3, "runs that stand apart are not in the log"


def test_planted_a_wrong_row_in_the_caches_is_seen(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = Logits(monkeypatch)
    messages = [system_message(f"planted {LONG}"), user("What is it?")]
    feed(engine, messages, assistant("Yes."), name="planted")

    def spoil(machinery: Any) -> None:
        caches = machinery.loop.sequences["planted"].live.leaves
        rows = [leaf for leaf in caches if hasattr(leaf, "keys")]
        rows[0].keys[..., 3, :] = 0

    engine.engine.call(spoil)
    messages += [assistant("Yes."), user("And then?")]
    end = feed(engine, messages, assistant("Yes."), name="planted").stats.prompt_tokens
    cached = max(request for request, _ in logits.seen)
    feed(engine, messages, None, uncached=True, name="planted", options=ONE)
    assert not np.array_equal(logits.seen[cached, end], logits.seen[cached + 1, end])


def test_an_uncached_run_changes_nothing(engine: ScriptedEngine) -> None:
    messages = [system_message(f"apart {LONG}"), user("What?")]
    feed(engine, messages, assistant("Yes."), name="apart")

    def state(machinery: Any) -> tuple[Any, ...]:
        sequences = {name: (s.live is not None, len(s.fed)) for name, s in machinery.loop.sequences.items()}
        return sequences, machinery.loop.reuse.trie.bytes, machinery.store.stats().records

    before = engine.engine.call(state)
    feed(engine, [*messages, assistant("Yes."), user("No?")], None, uncached=True, name="apart", options=ONE)
    assert engine.engine.call(state) == before


def test_a_request_over_the_limit_changes_nothing(engine: ScriptedEngine) -> None:
    messages = [system_message(f"limit {LONG}"), user("What?")]
    first = feed(engine, messages, assistant("Yes."), name="limit")
    too_long = Request(next_number(), "limit", (user(LONG * 3),), RequestOptions(max_context=100))
    engine.engine.submit(too_long)
    failed([too_long.events.get()])
    after = feed(engine, [*messages, assistant("Yes."), user("No?")], assistant("No."), name="limit")
    assert after.stats.divergence != "first"
    assert after.stats.cached_tokens >= first.stats.prompt_tokens - 8


def test_an_answer_over_the_context_is_cut(engine: ScriptedEngine) -> None:
    messages = [user("Cut?")]
    prompt = feed(engine, messages, assistant("Yes."), name="cut").stats.prompt_tokens
    turn = feed(engine, messages, assistant(LONG), name="cut", options=RequestOptions(max_context=prompt + 10))
    assert (turn.finish_reason, turn.stats.completion_tokens, turn.stats.context_tokens) == ("length", 10, prompt + 10)


def test_it_can_be_stopped_while_it_is_fed(engine: ScriptedEngine) -> None:
    number = next_number() + 1
    engine.gate.hold(f"{number}.token.1")
    request = Request(next_number(), "stop", (user("Stop?"),), OPTIONS, recorded=Recorded(assistant(LONG)))
    engine.engine.submit(request)
    engine.gate.wait_held()
    request.cancelled.set()
    events = []
    while not events or not isinstance(events[-1], TurnDone):
        events.append(request.events.get())
    engine.gate.release()
    last = done(events)
    assert (last.finish_reason, last.stats.completion_tokens) == ("interrupted", 0)
    assert last.message.interrupted
    assert isinstance(last.message.content[0], TextPart)
