"""Pictures in prompts: what is a picture and what only spells one, where anchors stand, what can't be shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.events import TurnFailed
from mlxchat.engine.messages import ImagePart, TextPart, user
from mlxchat.engine.prompts import PromptRenderer
from mlxchat.errors import TemplateError
from support.rewind_rig import Host
from support.vision_models import VisionFamily
from support.vision_rig import OPTIONS, VisionRig, VisionRigs, says

pytestmark = pytest.mark.exact
SPELLED: dict[VisionFamily, str] = {
    "qwen3_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "gemma3": "<start_of_image><image_soft_token><end_of_image>",
    "lfm2_vl": "<|image_start|><image><|image_end|>",
}


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisionRigs]:
    with VisionRigs(tmp_path_factory) as made:
        yield made


families = pytest.mark.parametrize("family", SPELLED)


@families
def test_words_that_spell_a_picture_stay_words(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family)
    chat = rig.chat("Forged.")
    seen = rig.ask(chat, says(f"What is {SPELLED[family]} in it?", rig.picture(1)))
    assert seen.equal
    (span,) = seen.prompt.pictures
    outside = [*seen.prompt.ids[: span.start], *seen.prompt.ids[span.end :]]
    assert span.image.placeholder not in outside
    assert SPELLED[family] in seen.prompt.text
    seen = rig.ask(chat, user(f"And {SPELLED[family]} alone?"))
    assert seen.equal
    assert len(seen.prompt.pictures) == 1


@families
def test_a_placeholder_that_the_model_samples_is_no_picture(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family)
    chat = rig.chat("Sampled.")
    rig.ask(chat, says("What is it?", rig.picture(2)), f"a {SPELLED[family]} cache")
    seen = rig.ask(chat, user("Sure?"))
    assert seen.equal
    assert len(seen.prompt.pictures) == 1


@families
def test_pictures_between_words_and_alone(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family)
    chat = rig.chat("Between.")
    parts = (TextPart("First "), rig.picture(3), TextPart(" then "), rig.picture(4), rig.picture(3), TextPart("."))
    first = rig.ask(chat, replace(user(""), content=parts))
    assert first.equal
    assert first.stats.images_encoded == 2
    assert first.stats.image_features_reused == 1
    digests = [span.digest for span in first.prompt.pictures]
    assert digests[0] == digests[2] != digests[1]
    alone = rig.ask(chat, replace(user(""), content=(rig.picture(5),)))
    assert alone.equal
    assert len(alone.prompt.pictures) == 4


@families
def test_an_anchor_stands_before_a_picture_that_leads(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family)
    seen = rig.ask(rig.chat("Anchors."), says("What is it?", rig.picture(6)))
    (span,) = seen.prompt.pictures
    starts = seen.prompt.positions("user_start")
    assert any(start <= span.start for start in starts), "before the picture: another picture goes on from here"
    assert any(start >= span.end for start in starts), "behind it: another question about it does"
    (system_end,) = seen.prompt.positions("system_end")
    assert system_end <= min(starts)
    assert not any(span.inside(mark.position) for mark in seen.prompt.marks)


def _renderer(host: Host, template: str) -> PromptRenderer:
    machinery = host.machinery
    return PromptRenderer(machinery.model.tokenizer, template, "this template", images=machinery.renderer.images)


def test_a_template_without_pictures_is_told(rigs: VisionRigs) -> None:
    rig: VisionRig = rigs("qwen3_vl")
    own = rig.cached.machinery.renderer.images
    words = "{% for m in messages %}{{ m.role }}: {{ m.content if m.content is string else 'x' }}\n{% endfor %}"
    try:
        renderer = _renderer(rig.cached, words)
        with pytest.raises(Exception, match="no place for pictures"):
            renderer.render([says("What is it?", rig.picture(7))])
        first_only = words.replace("'x'", "'<|image_pad|>'")
        renderer = _renderer(rig.cached, first_only)
        with pytest.raises(TemplateError, match="shows 1 of this conversation's 2 pictures"):
            renderer.render([says("What are they?", rig.picture(7), rig.picture(8))])
    finally:
        assert own is not None
        own.learn_marker(rig.cached.machinery.renderer._template)


def test_a_picture_that_is_none_is_told_before_anything_is_fed(rigs: VisionRigs, tmp_path: Path) -> None:
    rig = rigs("qwen3_vl")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    chat = rig.chat("Broken.")
    rig.ask(chat, user("Hello."))
    before: list[Any] = list(rig.cached.calls)
    (event,) = chat.ask(says("What is it?", ImagePart(str(broken))), OPTIONS)
    assert isinstance(event, TurnFailed)
    assert event.error.message == f"{broken} is not a picture"
    assert rig.cached.calls == before
    assert rig.ask(chat, user("Go on.")).equal
