"""A long question about a picture, twice: nothing is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mlxchat.cache.picture_records import PictureRecords
from mlxchat.engine.chat import next_number
from mlxchat.engine.events import TurnFailed
from mlxchat.engine.messages import ImagePart, Message, user
from mlxchat.engine.request import Request
from mlxchat.engine.vision_features import FeatureCache
from support.rewind_rig import _asked
from support.vision_models import FAMILIES, VisionFamily, save_picture
from support.vision_rig import OPTIONS, VisionRigs, says

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
        features.clear()
        machinery.store.drain(10)  # type: ignore[attr-defined]

    rig.cached.engine.call(forget)
    seen = rig.ask(rig.chat("Two."), says("What is it?", rig.picture(3)))
    assert seen.equal
    assert (seen.stats.images_encoded, seen.stats.image_features_reused) == (0, 1)


def test_the_picture_stays_what_it_was_when_its_file_changes(rigs: VisionRigs, tmp_path: Path) -> None:
    """As long as what was made of it is there; after that, one line says so."""
    rig = rigs("qwen3_vl")
    part = ImagePart(str(save_picture(tmp_path / "a.png", 100, 100, seed=1)))
    chat = rig.chat("Changing.")
    reply = rig.cached.encode("a cache<|im_end|>")

    def shown(message: Message) -> list[bytes]:
        rig.cached.hear(chat.ask(message, OPTIONS), reply)
        return [span.digest for span in rig.cached.prompts[-1].pictures]

    (first,) = shown(says("What is it?", part))
    save_picture(tmp_path / "a.png", 120, 140, seed=2)
    assert shown(user("Sure?")) == [first]
    digests = shown(says("And now?", replace(part)))
    assert digests[0] == first != digests[1]
    (tmp_path / "a.png").unlink()
    assert shown(user("It is gone.")) == digests
    request = Request(next_number(), "apart", tuple(chat.messages[:-1]), OPTIONS, uncached=True)
    *_, failed = _asked(rig.cached.engine, request)
    assert isinstance(failed, TurnFailed)
    assert "a.png" in failed.error.message


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


def test_a_deleted_conversation_takes_its_pictures_along(rigs: VisionRigs) -> None:
    rig = rigs("qwen3_vl")
    machinery = rig.cached.machinery
    one, other = rig.chat("Deleted."), rig.chat("Stays.")
    alone, shared = rig.picture(20), rig.picture(21)
    rig.ask(one, says("What are they?", alone, shared))
    rig.ask(other, says("What is it?", shared))

    def there(picture: ImagePart) -> bool:
        digest = machinery.renderer.images.prepare(picture).digest  # type: ignore[union-attr]
        records = PictureRecords(machinery.store)  # type: ignore[arg-type]
        features: FeatureCache = machinery.runner._model.features
        return digest in features._kept or records.get(digest) is not None

    assert rig.cached.engine.call(lambda _: (there(alone), there(shared))) == (True, True)
    rig.cached.engine.call(lambda machinery: machinery.loop.forget(one._name))
    assert rig.cached.engine.call(lambda _: (there(alone), there(shared))) == (False, True)


def test_a_run_that_leaves_nothing_behind_encodes_for_itself(rigs: VisionRigs) -> None:
    rig = rigs("qwen3_vl")
    message = says("What is it?", rig.picture(22))
    rig.ask(rig.chat("Apart."), message)
    request = Request(next_number(), "apart", (message,), OPTIONS, uncached=True)
    done = rig.cached.hear(_asked(rig.cached.engine, request), rig.cached.encode("a cache<|im_end|>"))
    assert (done.stats.images_encoded, done.stats.image_features_reused) == (1, 0)
    vision = rig.cached.machinery.runner._model
    assert vision._apart.nbytes == 0


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
