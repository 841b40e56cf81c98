"""Work ahead of a request: what is left to prefill, which numbers say so, and that no bit of the answer changes."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache import planner
from mlxchat.cache.keys import Place
from mlxchat.cache.live import LiveCache
from mlxchat.engine.messages import Message, user
from mlxchat.engine.sequence import Sequence
from mlxchat.engine.setup import Machinery
from support.rewind_rig import Asked, Rig, Rigs
from support.rewind_talk import Talk, fresh
from support.rewind_words import END, thought

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("same_words")]

RIGS = [("qwen3", "qwen3"), ("gemma3_text", "qwen3"), ("gpt_oss", "gpt_oss"), ("qwen3_5", "qwen36")]


SLOW = {"gpt_oss"}  # for test-slow: the other windows do the same


@pytest.fixture(
    scope="module",
    params=[pytest.param(rig, id=rig[0], marks=(pytest.mark.slow,) if rig[0] in SLOW else ()) for rig in RIGS],
)
def rig(request: pytest.FixtureRequest, rigs: Rigs) -> Rig:
    return rigs(*request.param, False)


def prepare(talk: Talk, draft: str | None = None, least: int = 1) -> None:
    """Let the engine get ready, and wait until it is."""
    work = talk.chat.prepare(talk.options, None if draft is None else user(draft), least)
    assert work.done.wait(60)


def ask(talk: Talk, message: Message | None = None, *, sound: bool = True) -> Asked:
    """As `Rig.ask`, where part of the prompt was fed ahead of it."""
    rig = talk.rig
    said = rig.cached.encode(thought(talk.family, fresh(3), fresh(4)) + END[talk.family])
    before = tuple(talk.chat.messages)
    message = message or user(fresh(12))
    done = rig.cached.hear(talk.chat.ask(message, talk.options), said)
    stats, calls = done.stats, list(rig.cached.calls)
    held = stats.prompt_tokens - stats.prefill_tokens
    wanted = rig._without_cache((*before, message), talk.options, said, held)
    asked = Asked(rig.cached.prompts[-1], done.message, stats, 0, held, calls, wanted)
    assert [(call.start, call.length) for call in calls] == [(call.start, call.length) for call in wanted]
    parts = stats.cached_tokens + stats.idle_prefill_tokens + stats.typeahead_prefill_tokens
    assert parts + stats.prefill_tokens == stats.prompt_tokens
    assert stats.cached_tokens == stats.cached_live_tokens + stats.cached_disk_tokens
    assert not sound or asked.equal()
    return asked


def last_words(asked: Asked) -> int:
    """How many tokens the last message and the header of the answer have."""
    return len(asked.ids) - max(asked.prompt.positions("user_start"))


def test_idle_work_leaves_the_words_and_the_header(rig: Rig) -> None:
    talk = Talk(rig)
    prepare(talk)  # the system prompt, before anything was asked
    first = ask(talk)
    assert first.stats.idle_prefill_tokens > 0
    assert first.stats.prefill_tokens == last_words(first)
    for _ in range(3):
        prepare(talk)
        asked = ask(talk)
        assert asked.stats.prefill_tokens == last_words(asked)
        assert asked.stats.idle_prefill_tokens > 0
        assert asked.stats.typeahead_prefill_tokens == 0
        assert asked.stats.rewind_tokens > 0
        assert asked.stats.divergence == "reasoning_dropped"


def test_typed_words_are_there_when_they_are_sent(rig: Rig) -> None:
    talk = Talk(rig)
    ask(talk)
    words = fresh(60)
    for end in range(10, len(words), 25):
        prepare(talk, words[:end])
    asked = ask(talk, user(words))
    assert asked.stats.typeahead_prefill_tokens > 0
    assert asked.stats.idle_prefill_tokens > 0
    assert asked.stats.prefill_tokens < last_words(asked) / 2
    prepare(talk)
    assert ask(talk).stats.prefill_tokens <= 40


def test_changed_words_go_back_to_where_they_began(rig: Rig) -> None:
    talk = Talk(rig)
    ask(talk)
    prepare(talk, fresh(40))
    asked = ask(talk)  # other words than those typed
    assert asked.stats.prefill_tokens == last_words(asked)
    assert asked.stats.typeahead_prefill_tokens == 0


def test_words_that_were_not_sent_are_never_written(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(rig)
    ask(talk)
    prepare(talk)
    machinery = rig.cached.machinery
    store, written = machinery.store, list[int]()
    assert store is not None
    submit = store.submit

    def noting(place: Place, group: str, position: int, *rest: Any, **more: Any) -> Any:
        written.append(position)
        return submit(place, group, position, *rest, **more)

    monkeypatch.setattr(store, "submit", noting)
    opened = rig.cached.engine.call(lambda made: _newest(made).live.length)  # type: ignore[union-attr]
    prepare(talk, fresh(400))
    assert rig.cached.engine.call(lambda made: _newest(made).live.length) > opened + 256  # type: ignore[union-attr,operator]
    assert written == []
    rig.cached.engine.call(lambda made: made.loop.reuse.parking.drop_live(_newest(made)))
    assert all(position <= opened for position in written)  # type: ignore[operator]
    asked = ask(talk)
    assert asked.stats.typeahead_prefill_tokens == 0


def _newest(machinery: Machinery) -> Sequence:
    return list(machinery.loop.sequences.values())[-1]


def park_now(made: Machinery) -> None:
    """As after hours of silence."""
    assert made.store is not None
    made.loop.conversations.park = -1.0
    made.loop.idle()
    assert made.store.drain(30)
    made.loop.idle()
    made.loop.conversations.park = None
    assert all(one.live is None and one.advance is None for one in made.loop.conversations.known.values())


@pytest.mark.parametrize("sent", [False, True], ids=["typed-on", "sent"])
def test_a_chat_that_was_left_in_mid_message_goes_on_from_the_disk(rig: Rig, sent: bool) -> None:
    talk = Talk(rig)
    ask(talk)
    words = fresh(60)
    prepare(talk, words[:20])
    rig.cached.engine.call(park_now)
    if not sent:
        prepare(talk, words[:50])
    asked = ask(talk, user(words))
    assert asked.stats.prefill_tokens <= last_words(asked)
    assert (asked.stats.typeahead_prefill_tokens > 0) == (not sent)
    prepare(talk)
    rig.cached.engine.call(park_now)
    after = ask(talk)
    assert after.stats.prefill_tokens == last_words(after)
    assert after.stats.restore_kind != "live"


def test_a_request_comes_first(rig: Rig) -> None:
    """However much is prepared, a request gives the same answer, and what was prepared for it is no longer awaited."""
    talk = Talk(rig)
    ask(talk)
    works = [talk.chat.prepare(talk.options, user(fresh(30))) for _ in range(3)]
    asked = ask(talk)
    assert all(work.done.wait(10) for work in works)
    assert asked.stats.prompt_tokens > 0


def test_where_the_words_begin_is_rendered_once_for_all_of_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(rig)
    ask(talk)
    prepare(talk)
    renderer, rendered = rig.cached.machinery.renderer, list[str]()
    render = renderer.render
    monkeypatch.setattr(renderer, "render", lambda messages, **how: (rendered.append(""), render(messages, **how))[1])
    prepare(talk, "One two three ")
    once = len(rendered)
    prepare(talk, "One two three four ")
    assert len(rendered) == 2 * once
    ask(talk)  # other messages: what was known of the last ones is no use
    rendered.clear()
    prepare(talk, "One two three ")
    assert len(rendered) > once


def test_few_tokens_are_not_worth_a_call(rig: Rig) -> None:
    talk = Talk(rig)
    ask(talk)
    prepare(talk)
    prepare(talk, "One two", least=50)
    words = "One two three."
    asked = ask(talk, user(words))
    assert asked.stats.typeahead_prefill_tokens == 0


def test_retry_after_idle_work(rig: Rig) -> None:
    """What was fed ahead is left behind; the bits are those of a run that never had it."""
    talk = Talk(rig)
    ask(talk)
    prepare(talk)
    said = rig.cached.encode(thought(talk.family, fresh(3), fresh(4)) + END[talk.family])
    done = rig.cached.hear(talk.chat.retry(talk.options), said)
    calls = list(rig.cached.calls)
    wanted = rig._without_cache(tuple(talk.chat.messages[:-1]), talk.options, said, done.stats.cached_tokens)
    assert done.stats.idle_prefill_tokens == 0
    asked = Asked(rig.cached.prompts[-1], done.message, done.stats, 0, 0, calls, wanted)
    assert asked.equal()


def test_a_failure_ahead_costs_only_the_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(rig)
    ask(talk)
    runner = rig.cached.machinery.runner
    with monkeypatch.context() as patch:
        patch.setattr(runner, "forward", _fails)
        prepare(talk)
    asked = ask(talk)
    assert asked.stats.idle_prefill_tokens == 0


def _fails(*_: object) -> mx.array:
    raise RuntimeError("planted")


def test_a_wrong_token_fed_ahead_is_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(rig)
    ask(talk)
    runner = rig.cached.machinery.runner
    forward = runner.forward

    def wrong(request: int, sequence: int, live: LiveCache, at: int, ids: mx.array) -> mx.array:
        changed = np.array(ids)
        changed[-1] ^= 1
        return forward(request, sequence, live, at, mx.array(changed))

    with monkeypatch.context() as patch:
        patch.setattr(runner, "forward", wrong)
        prepare(talk)
    assert not ask(talk, sound=False).equal()


def test_words_adopted_without_comparing_are_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(rig)
    ask(talk)
    prepare(talk, fresh(40))
    monkeypatch.setattr(planner, "common_prefix", lambda a, b: min(len(a), len(b)))
    assert not ask(talk, user(fresh(60)), sound=False).equal()
