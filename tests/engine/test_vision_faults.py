"""Planted faults: each must turn the comparison with the uncached engine red."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import pytest
from mlxchat.cache import keys, live, picture_mask
from mlxchat.engine import beginning, vision_model
from mlxchat.engine.cuts import cuts
from mlxchat.engine.image_spans import ImageSpan
from mlxchat.engine.messages import user
from mlxchat.engine.vision_model import VisionModel
from support.vision_models import FAMILIES, VisionFamily
from support.vision_rig import MROPE, WHOLE, Seen, VisionRig, VisionRigs, says

pytestmark = pytest.mark.exact
QUICK: tuple[VisionFamily, ...] = ("qwen3_vl", "gemma3")


class PositionsLost(VisionModel):
    """The pictures before a restored position no longer count: the rope delta is lost."""

    def __call__(
        self, ids: mx.array, caches: list[Any], start: int, spans: Sequence[ImageSpan], user: str | None = ""
    ) -> mx.array:
        return super().__call__(ids, caches, start, [span for span in spans if span.end > start], user)


class PositionsLocal(VisionModel):
    """Positions counted from the restored position on, instead of from the prompt's start."""

    def __call__(
        self, ids: mx.array, caches: list[Any], start: int, spans: Sequence[ImageSpan], user: str | None = ""
    ) -> mx.array:
        real = vision_model.rope_positions
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vision_model, "rope_positions", lambda spans, low, high: real(spans, low, high) - low)
            return super().__call__(ids, caches, start, spans, user)


class DeepstackLost(VisionModel):
    """What the library does with features that it is handed: the first layers no longer see the picture."""

    def _embedded(self, ids: mx.array, start: int, spans: list[ImageSpan], user: str | None) -> dict[str, Any]:
        inputs = super()._embedded(ids, start, spans, user)
        return {name: value for name, value in inputs.items() if name != "deepstack_visual_embeds"}


class MaskLost(VisionModel):
    """The picture's positions see only what is before them."""

    def __call__(
        self, ids: mx.array, caches: list[Any], start: int, spans: Sequence[ImageSpan], user: str | None = ""
    ) -> mx.array:
        real = picture_mask._open
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(picture_mask, "_open", lambda mask, *more: mask)
            logits = super().__call__(ids, caches, start, spans, user)
        assert picture_mask._open is real
        return logits


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisionRigs]:
    with VisionRigs(tmp_path_factory) as made:
        yield made


def families(chosen: Sequence[VisionFamily]) -> pytest.MarkDecorator:
    marked = [pytest.param(family, marks=() if family in QUICK else (pytest.mark.slow,)) for family in chosen]
    return pytest.mark.parametrize("family", marked)


def _second(rig: VisionRig, fault: type[VisionModel], *, picture: bool) -> Seen:
    """A turn in order, with a picture; then a fault, and a turn that restores, with a picture of its own or not."""
    chat = rig.chat("Faults.")
    assert rig.ask(chat, says("What is it?", rig.picture(1))).equal
    with rig.faulty(fault):
        return rig.ask(chat, says("And?", rig.picture(2)) if picture else user("And?"))


@families(MROPE)
@pytest.mark.parametrize("fault", [PositionsLost, PositionsLocal])
def test_lost_positions_are_noticed(rigs: VisionRigs, family: VisionFamily, fault: type[VisionModel]) -> None:
    seen = _second(rigs(family), fault, picture=False)
    assert seen.stats.cached_tokens > 0
    assert seen.same_calls
    assert not seen.same_logits


@families(["qwen3_vl"])
def test_lost_deepstack_is_noticed(rigs: VisionRigs, family: VisionFamily) -> None:
    seen = _second(rigs(family), DeepstackLost, picture=True)
    assert seen.same_calls
    assert not seen.same_logits


@families(WHOLE)
def test_a_lost_mask_is_noticed(rigs: VisionRigs, family: VisionFamily) -> None:
    seen = _second(rigs(family), MaskLost, picture=True)
    assert seen.same_calls
    assert not seen.same_logits


@families(WHOLE)
def test_a_split_picture_is_noticed(rigs: VisionRigs, family: VisionFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rigs(family)
    chat = rig.chat("Split.")
    rig.ask(chat, user("Hello."))

    def through_the_middle(length: int, marks: Any, whole: Sequence[ImageSpan] = ()) -> list[int]:
        return sorted({*cuts(length, marks), *((span.start + span.end) // 2 for span in whole)})

    monkeypatch.setattr(beginning, "cuts", through_the_middle)
    seen = rig.ask(chat, says("What is it?", rig.picture(3)))
    assert not seen.same_logits


@families(FAMILIES)
def test_an_ignored_hash_is_noticed(rigs: VisionRigs, family: VisionFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    real = keys.elements
    blank = lambda ids, hashes=(): real(ids, [(start, end, bytes(32)) for start, end, _ in hashes])  # noqa: E731
    monkeypatch.setattr(live, "elements", blank)
    monkeypatch.setattr(keys, "elements", blank)
    rig = rigs(family)
    first = rig.ask(rig.chat("Ignored."), says("What is it?", rig.picture(4)))
    other = rig.ask(rig.chat("Ignored."), says("What is it?", rig.picture(5)))
    assert other.stats.cached_tokens > first.prompt.pictures[0].end - 1
    assert not other.same_logits
