"""Every kind of rewind on every kind of layer, through the engine and a chat: what is prefilled, and which bits.

`Rig.ask` compares each request with the uncached engine bit for bit, and its position with the design's rules; the
tests here add the bars: no more than four tokens over what a perfect cache would prefill.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from mlxchat.engine.messages import assistant, system, tool_result, user
from support.rewind_oracle import WINDOW_SLACK
from support.rewind_rig import Asked, Rig, Rigs
from support.rewind_talk import SYSTEM, Talk, fresh, within, written_call
from support.rewind_words import (
    CALL_END,
    HAS_OFF_SWITCH,
    KEEPS_IN_LOOP,
    OTHER_END,
    OTHER_TOOLS,
    calls,
    options,
    thought,
)
from support.tiny_tokenizer import Family

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("same_words")]

KINDS = ("qwen3", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss", "qwen3_5")
TEMPLATES: tuple[Family, ...] = ("qwen3", "qwen36", "gemma4", "gpt_oss", "deepseek_r1")
DIAGONAL: tuple[tuple[str, Family], ...] = (
    ("qwen3", "qwen3"),
    ("gemma3_text", "qwen3"),
    ("gemma3n", "deepseek_r1"),
    ("gemma4_text", "gemma4"),
    ("gpt_oss", "gpt_oss"),
    ("qwen3_5", "qwen36"),
)
"""The pairs of `make test`, restored from records; the others are for test-slow."""
ALSO_LIVE = (("gemma3_text", "qwen3"),)
"""Those that are also rewound in memory there, as the others are in test_ahead and test_branches."""


Applies = Callable[[str, Family, bool], bool]


def on(applies: Applies = lambda kind, family, drop_live: True) -> pytest.MarkDecorator:
    """Run a test on the rigs it applies to, by kind of model, family of template and where the KV comes from."""
    found = []
    for kind, family, drop_live in itertools.product(KINDS, TEMPLATES, (False, True)):
        if applies(kind, family, drop_live):
            quick = (kind, family) in DIAGONAL and (drop_live or (kind, family) in ALSO_LIVE)
            marks = () if quick else (pytest.mark.slow,)
            name = f"{kind}-{family}-{'dropped' if drop_live else 'live'}"
            found.append(pytest.param((kind, family, drop_live), id=name, marks=marks))
    return pytest.mark.parametrize("rig", found, indirect=True, scope="module")


@pytest.fixture(scope="module")
def rig(request: pytest.FixtureRequest, rigs: Rigs) -> Rig:
    return rigs(*request.param)


def restored(rig: Rig, asked: Asked, divergence: str) -> None:
    """Where it came from, and what the user is told of it."""
    assert asked.stats.divergence == divergence
    if rig.drop_live:
        assert asked.stats.restore_kind in ("anchor", "block")
        assert asked.stats.cached_disk_tokens == asked.stats.cached_tokens
    elif rig.layers != "local" or asked.stats.rewind_tokens <= WINDOW_SLACK:
        assert asked.stats.restore_kind == "live"
        assert asked.stats.cached_disk_tokens == 0


@on()
def test_r1_reasoning_dropped_each_turn(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask(user(fresh(60)))
    for _ in range(2):
        asked = within(talk.ask())
        restored(rig, asked, "reasoning_dropped")
        assert asked.stats.rewind_tokens > 5


@on()
def test_r0_r2_a_tool_loop_and_the_message_after_it(rig: Rig) -> None:
    talk = Talk(rig, tools=True)
    start = talk.call(user(fresh(40)))
    steps = [within(talk.call(talk.result())), within(talk.ask(talk.result()))]
    if rig.family in KEEPS_IN_LOOP:
        for step in steps:
            restored(rig, step, "append")
            assert step.stats.rewind_tokens <= 1
    after = within(talk.ask())
    if rig.family in KEEPS_IN_LOOP:
        restored(rig, after, "reasoning_dropped")
        assert after.stats.cached_tokens <= start.stats.prompt_tokens + 1  # gpt-oss: a channel either way


@on(lambda kind, family, drop_live: family in HAS_OFF_SWITCH)
def test_r3_scaffold_of_the_generation_prompt(rig: Rig) -> None:
    talk = Talk(rig, thinking=False)
    first = talk.ask(reasoned=False)
    assert first.prompt.scaffold_ids
    restored(rig, within(talk.ask(reasoned=False)), "reasoning_dropped")


@on()
def test_r4_a_transcript_without_reasoning(rig: Rig) -> None:
    talk = Talk(rig, tools=True)
    talk.call(user(fresh(40)))
    for _ in range(2):
        talk.chat.messages[-1] = written_call()
        asked = within(talk.call(tool_result(fresh(12), "abcdefghi", "get_weather")))
        assert asked.stats.cached_tokens > 0


@on(lambda kind, family, drop_live: family in KEEPS_IN_LOOP)
def test_r5_retokenized_is_told(rig: Rig) -> None:
    """On templates that leave part of a reply in history; exempt from the bar."""
    talk = Talk(rig, tools=True)
    odd = [i for c in calls(rig.family, "Paris", fresh(6)).split(" ") for i in rig.cached.encode(c + " ")]
    rig.ask(talk.chat, user(fresh(30)), odd, talk.options, end=CALL_END[rig.family])
    talk.chat.messages[-1] = replace(talk.chat.messages[-1], generated=None)
    asked = talk.ask(talk.result())
    assert asked.stats.divergence == "retokenized"
    assert asked.stats.cached_tokens > 0


@on()
def test_r6_another_system_other_tools(rig: Rig) -> None:
    talk = Talk(rig, tools=True)
    talk.ask()
    talk.chat.messages[0] = system(SYSTEM + " " + fresh(6))
    changed = [talk.ask()]
    if rig.family != "deepseek_r1":  # its template shows no tools
        talk.options = replace(talk.options, tools=OTHER_TOOLS)
        changed.append(talk.ask())
    if rig.family == "gemma4":
        talk.options = replace(talk.options, thinking=options("gemma4", thinking=False).thinking)
        changed.append(talk.ask(reasoned=False))
    for asked in changed:
        assert asked.stats.divergence == "system_or_tools_changed"
        if rig.layers != "recurrent":
            within(asked)


@on()
def test_r7_edit_and_the_way_back(rig: Rig) -> None:
    talk = Talk(rig)
    for _ in range(3):
        talk.ask()
    old = list(talk.chat.messages)
    talk.chat.messages[3:] = []
    edited = within(talk.ask())
    assert edited.stats.divergence == "history_edited"
    talk.chat.messages[:] = old
    within(talk.ask())


@on()
def test_r7_retry(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    talk.ask()
    within(talk.retry())
    within(talk.ask())


@on()
def test_r7_undo_and_another_text(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    talk.ask()
    talk.chat.undo()
    within(talk.ask())
    within(talk.ask())


@on()
def test_edit_after_a_shared_opening(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    text = fresh(30)
    talk.ask(user(text))
    talk.chat.undo()
    asked = talk.ask(user(" ".join([*text.split()[:20], fresh(10)])))
    if rig.layers != "recurrent":
        within(asked)
    else:
        assert asked.stats.shortfall_reason == "no_anchor"


@on()
def test_fork(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    talk.ask()
    fork = Talk(rig)
    fork.chat.messages[:] = talk.chat.messages
    within(fork.ask())
    within(talk.ask())


@on()
def test_siblings_on_one_system_prompt(rig: Rig) -> None:
    Talk(rig).ask()
    sibling = within(Talk(rig).ask())
    assert sibling.stats.cached_tokens > 20
    assert sibling.stats.divergence == "first"


@on()
def test_a_tool_loop_resumed_after_parking(rig: Rig) -> None:
    talk = Talk(rig, tools=True)
    talk.call(user(fresh(30)))
    Talk(rig).ask()
    asked = within(talk.ask(talk.result()))
    assert asked.stats.restore_kind == "anchor"


@on(lambda kind, family, drop_live: family in (*OTHER_END, "gpt_oss"))
def test_r8_another_end_token_in_history(rig: Rig) -> None:
    """gpt-oss has one by itself: return is sampled, history has end."""
    talk = Talk(rig)
    talk.ask(reasoned=False, end=OTHER_END.get(rig.family, ""))
    within(talk.ask(reasoned=False, end=OTHER_END.get(rig.family, "")))
    within(talk.ask())


@on(lambda kind, family, drop_live: kind in ("gemma3_text", "gpt_oss") and not drop_live)
def test_a_thought_longer_than_the_window(rig: Rig) -> None:
    """The window in memory has moved past the stable prefix: its rows come from records, the global ones stay."""
    talk = Talk(rig)
    rig.ask(talk.chat, user(fresh(300)), thought(rig.family, fresh(3), fresh(230)), talk.options)
    asked = within(talk.ask())
    assert asked.stats.rewind_tokens > 2 * WINDOW_SLACK
    assert asked.stats.restore_kind == "anchor"
    assert asked.stats.cached_disk_tokens > 0
    assert asked.stats.cached_live_tokens > 0


@on(lambda kind, family, drop_live: drop_live and family not in ("qwen36", "deepseek_r1"))
def test_a_long_answer_that_stays(rig: Rig) -> None:
    """Blocks that decode completed are as good as those of prefill (where the template keeps an answer as it was)."""
    talk = Talk(rig)
    rig.ask(talk.chat, user(fresh(30)), thought(rig.family, fresh(150)), talk.options)
    asked = within(talk.ask())
    assert asked.stats.cached_tokens > 256
    assert asked.stats.divergence == "append"


@on()
def test_history_that_was_never_sampled_here(rig: Rig) -> None:
    """Only what the conversation is asked with counts: its answers come from elsewhere."""
    talk = Talk(rig)
    talk.chat.messages += [user(fresh(30)), assistant(fresh(20))]
    talk.ask()
    within(talk.ask())
