"""Pictures in conversations: what is restored, encoded and prefilled, and the bits of what follows, family by family.

Every request is compared with an engine without a cache (`VisionRig.ask`): the same calls, the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from mlxchat.engine import beginning
from mlxchat.engine.cuts import cuts
from mlxchat.engine.messages import TextPart, tool_result, user
from support.rewind_words import TOOLS
from support.vision_models import FAMILIES, VisionFamily
from support.vision_rig import OPTIONS, RECURRENT, WHOLE, Seen, VisionRig, VisionRigs, says, thinks

pytestmark = pytest.mark.exact

QUICK: tuple[VisionFamily, ...] = ("qwen3_vl", "gemma3", "lfm2_vl")
"""Grids of positions and deepstack; pictures seen whole and windows; recurrent layers. test-slow has the others, and
what stays in memory of all but the first."""


def families(
    applies: Callable[[VisionFamily], bool] = lambda family: True, *, quick: tuple[VisionFamily, ...] = QUICK
) -> pytest.MarkDecorator:
    """Run a test on the rigs it applies to."""
    found = []
    for family in filter(applies, FAMILIES):
        for drop_live in (False, True):
            marks = () if family in quick and (drop_live or family == quick[0]) else (pytest.mark.slow,)
            name = f"{family}-{'dropped' if drop_live else 'live'}"
            found.append(pytest.param((family, drop_live), id=name, marks=marks))
    return pytest.mark.parametrize("rig", found, indirect=True, scope="module")


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisionRigs]:
    with VisionRigs(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def rig(request: pytest.FixtureRequest, rigs: VisionRigs) -> VisionRig:
    return rigs(*request.param)


def only_new(rig: VisionRig, seen: Seen, before: Seen) -> None:
    """All of the prompt before is there again (a recurrent state stands a token earlier), and nothing is encoded."""
    kept = len(before.prompt.ids) - (1 if rig.family in RECURRENT else 0)
    assert seen.stats.cached_tokens >= kept
    assert seen.stats.prefill_tokens <= len(seen.prompt.ids) - kept
    assert seen.stats.images_encoded == 0


@families()
def test_a_picture_before_what_is_restored(rig: VisionRig) -> None:
    chat = rig.chat("A picture first.")
    first = rig.ask(chat, says("What is in the picture?", rig.picture(1)), thinks("the user asks", "a cache"))
    assert first.equal
    assert (first.stats.images_encoded, first.stats.image_features_reused) == (1, 0)
    assert first.stats.image_tokens == first.prompt.pictures[0].image.tokens > 0
    second = rig.ask(chat, user("And what is not?"), thinks("well", "a block"))
    assert second.equal
    assert second.stats.divergence == "reasoning_dropped"
    assert second.stats.image_tokens == first.stats.image_tokens
    only_new(rig, second, first)
    only_new(rig, rig.ask(chat, user("Thank you.")), second)


@families()
def test_a_picture_in_what_is_prefilled(rig: VisionRig) -> None:
    chat = rig.chat("A picture later.")
    first = rig.ask(chat, user("Hello world, this is a test of the reader."), thinks("hm", "yes"))
    second = rig.ask(chat, says("What is this?", rig.picture(2)), thinks("a picture", "a layer"))
    assert second.equal
    assert second.stats.cached_tokens >= len(first.prompt.ids) - 1
    assert second.stats.cached_tokens <= second.prompt.pictures[0].start
    assert second.stats.images_encoded == 1
    third = rig.ask(chat, says("And this one, on turn three?", rig.picture(3, 90, 200)))
    assert third.equal
    assert third.stats.images_encoded == 1
    assert third.stats.cached_tokens >= second.prompt.pictures[0].end


@families()
def test_two_pictures_over_a_block_edge(rig: VisionRig) -> None:
    chat = rig.chat("Two pictures.")
    one, two = rig.picture(4), rig.picture(5, 240, 180)
    lead = rig.words(228)
    parts = (TextPart(lead), one, TextPart(" and "), two, TextPart(" differ in what?"))
    message = replace(user(""), content=parts)
    first = rig.ask(chat, message, thinks("two of them", "colours"))
    assert first.equal
    spans = first.prompt.pictures
    assert len(spans) == 2
    assert spans[0].start < 256 < spans[0].end <= spans[1].start
    assert first.stats.images_encoded == 2
    second = rig.ask(chat, user("Which one is larger?"))
    assert second.equal
    only_new(rig, second, first)


@families()
def test_two_conversations_with_pictures_take_turns(rig: VisionRig) -> None:
    chats = [rig.chat("Taking turns."), rig.chat("Taking turns.")]
    pictures = [rig.picture(6, 200, 100), rig.picture(7, 100, 200)]
    before: list[Seen] = []
    for chat, picture in zip(chats, pictures, strict=True):
        seen = rig.ask(chat, says("Describe it.", picture), thinks("so", "a window"))
        assert seen.equal
        before.append(seen)
    for _ in range(2):
        for index, chat in enumerate(chats):
            seen = rig.ask(chat, user("And then?"), thinks("so", "the prefix"))
            assert seen.equal
            only_new(rig, seen, before[index])
            before[index] = seen


@families()
def test_the_same_ids_with_another_picture(rig: VisionRig) -> None:
    first = rig.ask(rig.chat("Same words."), says("What is it?", rig.picture(8)))
    other = rig.ask(rig.chat("Same words."), says("What is it?", rig.picture(9)))
    assert np.array_equal(first.prompt.ids, other.prompt.ids)
    assert other.equal
    assert other.stats.common_prefix_tokens == other.prompt.pictures[0].start
    assert 0 < other.stats.cached_tokens <= other.prompt.pictures[0].start
    assert other.stats.images_encoded == 1
    again = rig.ask(rig.chat("Same words."), says("What is it?", rig.picture(8)))
    assert again.equal
    assert again.stats.cached_tokens == len(again.prompt.ids) - 1


@families()
def test_another_picture_in_place_of_the_first(rig: VisionRig) -> None:
    chat = rig.chat("Changed.")
    rig.ask(chat, says("What is it?", rig.picture(10)))
    rig.ask(chat, user("Sure?"))
    chat.messages[1] = says("What is it?", rig.picture(11))
    seen = rig.ask(chat, user("Look again."))
    assert seen.equal
    assert seen.stats.divergence == "image_changed"
    assert seen.stats.cached_tokens <= seen.prompt.pictures[0].start


@families()
def test_the_same_question_again_encodes_nothing(rig: VisionRig) -> None:
    chat = rig.chat("Again.")
    rig.ask(chat, says("Describe it.", rig.picture(12)))
    seen = rig.ask(chat, None)
    assert seen.equal
    assert (seen.stats.prefill_tokens, seen.stats.images_encoded) == (1, 0)
    chat.undo()
    seen = rig.ask(chat, says("Describe it well.", rig.picture(12)))
    assert seen.equal
    assert seen.stats.images_encoded == 0
    if rig.family not in RECURRENT:
        assert seen.stats.cached_tokens >= seen.prompt.pictures[0].end


@families()
def test_a_picture_seen_before_is_not_encoded_for_another_question(rig: VisionRig) -> None:
    rig.ask(rig.chat("One."), says("What is it?", rig.picture(13)))
    seen = rig.ask(rig.chat("Two."), says("What is it?", rig.picture(13), rig.picture(14)))
    assert seen.equal
    assert (seen.stats.images_encoded, seen.stats.image_features_reused) == (1, 1)


@families(lambda family: family in WHOLE)
def test_reasoning_longer_than_the_window(rig: VisionRig) -> None:
    """Picture, thought, another conversation, follow-up: the new tokens only."""
    chat = rig.chat("Long thoughts.")
    first = rig.ask(chat, says("Look closely.", rig.picture(15)), thinks("thinking about the window " * 60, "done"))
    assert first.stats.reasoning_tokens > 128
    rig.ask(rig.chat("Unrelated."), user("What is the capital of France? " * 20))
    second = rig.ask(chat, user("And now?"))
    assert second.equal
    assert second.stats.shortfall_reason == "none"
    only_new(rig, second, first)


@families()
def test_a_picture_cut_by_the_prefill_step(rig: VisionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long pictures are prefilled in steps; those that must be seen whole are moved behind the cut."""
    monkeypatch.setattr(beginning, "cuts", functools.partial(cuts, step=32))
    chat = rig.chat("In steps.")
    seen = rig.ask(chat, says("What is it? " * 10, rig.picture(16, 400, 320)))
    assert seen.equal
    span = seen.prompt.pictures[0]
    inner = [call.start for call in seen.calls if span.start < call.start < span.end]
    if rig.family in WHOLE:
        assert not inner
    else:
        assert inner or span.end - span.start < 32
    assert (seen.stats.images_encoded, seen.stats.image_features_reused) == (1, 0)
    assert rig.ask(chat, user("And?")).equal


@families()
def test_a_tool_loop_about_a_picture(rig: VisionRig) -> None:
    chat = rig.chat("Use tools.")
    options = replace(OPTIONS, tools=TOOLS)
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    first = rig.ask(chat, says("Where is this?", rig.picture(17)), f"<think>\nlook\n</think>\n\n{call}", options)
    assert first.message.tool_calls, first.message
    step = rig.ask(chat, tool_result("rain", first.message.tool_calls[0].id, "get_weather"), "wet", options)
    assert step.equal
    assert step.stats.images_encoded == 0
    assert step.stats.cached_tokens > first.prompt.pictures[0].end
    after = rig.ask(chat, user("Thanks."), "yes", options)
    assert after.equal
    assert after.stats.images_encoded == 0
