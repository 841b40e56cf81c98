"""A long question about a picture, twice: nothing is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mlxchat.engine.messages import ImagePart, user
from mlxchat.engine.vision_features import FeatureCache
from support.vision_models import FAMILIES, VisionFamily, save_picture
from support.vision_rig import VisionRigs, says

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def rigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VisionRigs]:
    with VisionRigs(tmp_path_factory) as made:
        yield made


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=() if one == "smolvlm" else (pytest.mark.slow,)) for one in FAMILIES]
)
def test_a_thousand_tokens_twice(rigs: VisionRigs, family: VisionFamily) -> None:
    rig = rigs(family, drop_live=True)
    message = says(rig.words(900), rig.picture(1, 640, 480), rig.picture(2, 640, 480))
    first = rig.ask(rig.chat("Long."), message)
    assert first.stats.prompt_tokens > 1000 or family in ("gemma3", "gemma4", "lfm2_vl")
    second = rig.ask(rig.chat("Long."), message)
    assert second.equal
    assert (second.stats.images_encoded, second.stats.image_features_reused) == (0, 0)
    assert second.stats.prefill_tokens == 1


def test_features_come_back_from_disk(rigs: VisionRigs) -> None:
    """Memory has forgotten them: they are read, not computed, and the bits are the same."""
    rig = rigs("qwen3_vl", drop_live=True)
    assert rig.ask(rig.chat("One."), says("What is it?", rig.picture(3))).stats.images_encoded == 1

    def forget(machinery: object) -> None:
        features: FeatureCache = machinery.runner._model.features  # type: ignore[attr-defined]
        features._kept.clear()
        machinery.store.drain(10)  # type: ignore[attr-defined]

    rig.cached.engine.call(forget)
    seen = rig.ask(rig.chat("Two."), says("What is it?", rig.picture(3)))
    assert seen.equal
    assert (seen.stats.images_encoded, seen.stats.image_features_reused) == (0, 1)


def test_the_picture_stays_what_it_was_when_its_file_changes(rigs: VisionRigs, tmp_path: Path) -> None:
    rig = rigs("qwen3_vl")
    part = ImagePart(str(save_picture(tmp_path / "a.png", 100, 100, seed=1)))
    chat = rig.chat("Changing.")
    first = rig.ask(chat, says("What is it?", part))
    save_picture(tmp_path / "a.png", 120, 140, seed=2)
    second = rig.ask(chat, user("Sure?"))
    assert second.equal
    assert second.prompt.pictures[0].digest == first.prompt.pictures[0].digest
    third = rig.ask(chat, says("And now?", replace(part)))
    assert third.equal
    digests = [span.digest for span in third.prompt.pictures]
    assert digests[0] == first.prompt.pictures[0].digest != digests[1]
    (tmp_path / "a.png").unlink()
    assert rig.ask(chat, user("It is gone.")).equal


def test_the_bound_on_memory_holds(rigs: VisionRigs) -> None:
    rig = rigs("qwen3_vl")
    features: FeatureCache = rig.cached.machinery.runner._model.features
    for seed in range(10, 14):
        rig.ask(rig.chat("Bounded."), says("What is it?", rig.picture(seed)))
    most, features._most_bytes = features._most_bytes, features.nbytes // 2
    try:
        rig.ask(rig.chat("Bounded."), says("What is it?", rig.picture(14)))
        assert features.nbytes <= features._most_bytes
    finally:
        features._most_bytes = most


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "lfm2_vl", "gemma4"])
def test_prefill_with_pictures_peaks_near_that_of_words(rigs: VisionRigs, family: VisionFamily) -> None:
    """Forty pictures in the steps of prefill, against as many tokens of words."""
    rig = rigs(family)
    pictures = [rig.picture(seed, 160, 120) for seed in range(40)]
    shown = rig.ask(rig.chat("Memory."), says(rig.words(3000), *pictures))
    assert shown.equal
    assert shown.stats.images_encoded == 40
    words = rig.ask(rig.chat("Words."), user(rig.words(shown.stats.prompt_tokens)))
    assert shown.stats.peak_memory_bytes < 1.25 * words.stats.peak_memory_bytes
