"""Our prompts, positions and logits beside what mlx-vlm itself makes of the same messages in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.cache.window import use_window_caches
from mlxchat.engine.image_spans import ImageSpan, PreparedImage, rope_positions
from mlxchat.engine.messages import ImagePart, user
from PIL import Image
from support.vision_models import FAMILIES, VisionFamily
from support.vision_rig import MROPE, WHOLE, Seen, VisionRig, VisionRigs, says

pytestmark = pytest.mark.exact
QUICK: tuple[VisionFamily, ...] = ("qwen3_vl", "gemma4", "lfm2_vl")


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisionRigs]:
    with VisionRigs(tmp_path_factory) as made:
        yield made


every_family = pytest.mark.parametrize(
    "family", [pytest.param(one, marks=() if one in QUICK else (pytest.mark.slow,)) for one in FAMILIES]
)


def _asked(rig: VisionRig) -> tuple[Seen, list[ImagePart]]:
    # gemma4's processor gives pictures of two sizes in a form that its model doesn't take
    pictures = [rig.picture(1), rig.picture(2) if rig.family == "gemma4" else rig.picture(2, 90, 210)]
    chat = rig.chat()
    rig.ask(chat, says("What is it?", pictures[0]))
    return rig.ask(chat, says("And this?", pictures[1])), pictures


def _fields(rig: VisionRig, seen: Seen, pictures: list[ImagePart]) -> dict[str, Any]:
    """What mlx-vlm's processor makes of the whole text and all pictures at once."""
    processor = rig.cached.machinery.model.processor
    images = [Image.open(part.source).convert("RGB") for part in pictures]
    text = seen.prompt.text
    for span in seen.prompt.pictures:  # gemma3: white space around the marker is the processor's, not the template's
        marker = rig.cached.machinery.renderer.images.marker  # type: ignore[union-attr]
        text = text.replace(span.image.lead + marker + span.image.tail, marker, 1) if span.image.lead else text
    fields = dict(processor(text=[text], images=images, add_special_tokens=False))
    return {name: mx.array(np.array(value)) for name, value in fields.items() if value is not None}


@every_family
def test_the_prompt_is_the_processors_own(rigs: VisionRigs, family: VisionFamily) -> None:
    seen, pictures = _asked(rigs(family))
    ids = np.array(_fields(rigs(family), seen, pictures)["input_ids"]).reshape(-1)
    assert seen.prompt.ids.tolist() == ids.tolist()


@every_family
def test_logits_are_the_librarys(rigs: VisionRigs, family: VisionFamily) -> None:
    """Up to rounding: one call against several, all pictures encoded at once against each alone."""
    rig = rigs(family)
    seen, pictures = _asked(rig)
    fields = _fields(rig, seen, pictures)
    theirs = rig.cached.engine.call(lambda machinery: _one_call(machinery.model.model, family, fields, seen))
    last = next(call.logits for call in seen.calls if call.start == len(seen.prompt.ids) - 1)
    assert last is not None
    assert np.allclose(last, theirs, atol=2e-4 * np.abs(last).max()), np.abs(last - theirs).max()


def _one_call(model: Any, family: VisionFamily, fields: dict[str, Any], seen: Seen) -> np.ndarray:
    from mlx_vlm.models.cache import make_prompt_cache

    ids = fields.pop("input_ids")
    mask = fields.pop("attention_mask")
    inputs = model.get_input_embeddings(ids, mask=mask, **fields).to_dict()
    given = {name: value for name, value in inputs.items() if value is not None and name != "attention_mask_4d"}
    caches = make_prompt_cache(model.language_model)
    if family in WHOLE:  # gemma3's own call leaves the mask out; the reference lets each picture see itself
        length = ids.shape[1]
        assert length <= 128, "longer than the window: one mask would not do for all layers"
        seen_by = np.tril(np.ones((length, length), np.bool_))
        for span in seen.prompt.pictures:
            seen_by[span.start : span.end, span.start : span.end] = True
        given["mask"], caches = mx.array(seen_by), use_window_caches(caches)
    logits = model.language_model(ids, cache=caches, **given).logits
    return np.array(logits[0, -1].astype(mx.float32))


@pytest.mark.parametrize("family", MROPE)
@pytest.mark.slow
def test_positions_are_the_librarys(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family)
    seen, pictures = _asked(rig)
    fields = _fields(rig, seen, pictures)

    def ask(machinery: Any) -> tuple[np.ndarray, int]:
        language = machinery.model.model.language_model
        ids, delta = language.get_rope_index(fields["input_ids"], fields["image_grid_thw"])
        return np.array(ids)[:, 0], int(delta.item())

    wanted, delta = rig.cached.engine.call(ask)  # type: ignore[misc]
    spans, length = seen.prompt.pictures, len(seen.prompt.ids)
    assert np.array_equal(rope_positions(spans, 0, length), wanted)
    assert rope_positions(spans, length, length + 1)[0, 0] == length + delta


def test_positions_of_any_part_are_those_of_the_whole() -> None:
    spans = [_span(5, (1, 3, 4)), _span(20, (2, 2, 9)), _span(60, (1, 1, 2))]
    whole = rope_positions(spans, 0, 80)
    for start in range(0, 80, 3):
        for end in range(start + 1, 81, 7):
            assert np.array_equal(rope_positions(spans, start, end), whole[:, start:end])
    assert whole[:, 4].tolist() == [4, 4, 4]
    assert whole[:, 5:17].T.tolist()[-1] == [5, 7, 8]
    assert whole[:, 17].tolist() == [9, 9, 9]


def _span(start: int, grid: tuple[int, int, int]) -> ImageSpan:
    count = grid[0] * grid[1] * grid[2]
    return ImageSpan(start, start + count, PreparedImage(b"", "", (1,) * count, "", "", "", 1, grid), "")


def test_a_text_only_model_refuses_pictures_in_one_line(tmp_path: Any) -> None:
    from mlxchat.engine.chat import Chat
    from mlxchat.engine.engine import Engine
    from mlxchat.engine.events import TurnFailed
    from mlxchat.engine.options import CacheOptions, EngineOptions
    from support.rewind_rig import make_model
    from support.vision_models import save_picture

    folder = make_model(tmp_path, "llama", "chatml")
    engine = Engine.start(EngineOptions(model=str(folder), cache=CacheOptions(enabled=False)), print)
    try:
        assert not engine.info.vision
        part = ImagePart(str(save_picture(tmp_path / "a.png", 40, 40)))
        chat = Chat(engine)
        (event,) = chat.ask(says("What is it?", part), _options())
        assert isinstance(event, TurnFailed)
        assert event.error.code == "model_unsupported"
        assert event.error.message == "model is a text model and can't see pictures"
        assert chat.messages == []
    finally:
        engine.close()
    assert user("x").content  # the message that was refused isn't kept


def _options() -> Any:
    from support.vision_rig import OPTIONS

    return OPTIONS
