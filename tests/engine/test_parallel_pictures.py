"""Pictures beside other conversations: the vision tower holds nobody up for longer than one picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.image_spans import ImageSpan
from mlxchat.engine.messages import ImagePart, Message, TextPart
from mlxchat.engine.request import Request
from mlxchat.engine.runner import ModelRunner
from mlxchat.engine.setup import Machinery
from mlxchat.engine.vision_features import ImageFeatures
from mlxchat.engine.vision_model import VisionModel
from support import vision_models
from support.at_once import asked, ids_of, together
from support.scripted import ScriptedEngine

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    vision_models.make(folder / "model", "qwen3_vl")
    return folder


@pytest.fixture(scope="module")
def engines(work: Path) -> Iterator[tuple[ScriptedEngine, ScriptedEngine]]:
    """One that runs three at once, and one that runs one."""
    made = [ScriptedEngine(work / "model", work / str(parallel), parallel=parallel) for parallel in (3, 1)]
    for one in made:
        one.unscript()
    yield made[0], made[1]
    for one in made:
        one.check()
        one.close()
        assert one.notices == []


def shows(work: Path, *seeds: int) -> Message:
    parts = []
    for seed in seeds:
        file = work / f"{seed}.png"
        if not file.exists():
            vision_models.save_picture(file, 160, 120, seed)
        parts.append(ImagePart(str(file)))
    return Message("user", (TextPart("What is the difference?"), *parts))


def many(work: Path) -> list[Request]:
    """Words alone, one picture, two."""
    texts = ["Say something long.", shows(work, 1), shows(work, 1, 2)]
    return [asked(f"picture {number}", text, max_tokens=24) for number, text in enumerate(texts)]


def test_each_sees_its_own_pictures(engines: tuple[ScriptedEngine, ScriptedEngine], work: Path) -> None:
    got, wanted = together(engines[0].engine, *many(work)), []
    for request in many(work):
        wanted += together(engines[1].engine, request)
    assert [ids_of(one) for one in got] == [ids_of(one) for one in wanted]
    assert len({ids_of(one) for one in got}) == 3
    assert [one.stats.images_encoded for one in got] == [one.stats.images_encoded for one in wanted]


def look_while_another_talks(
    engine: ScriptedEngine, work: Path, seeds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three new pictures in one prefill call; the other says more between each two of them."""
    done: list[str] = []
    encode, forward = VisionModel.encode, ModelRunner.forward

    def encoding(self: VisionModel, span: ImageSpan) -> ImageFeatures:
        done.append("picture")
        return encode(self, span)

    def calling(self: ModelRunner, request: int, *more: Any) -> Any:
        done.append("words" if request == talks.number else "prompt")
        return forward(self, request, *more)

    monkeypatch.setattr(VisionModel, "encode", encoding)
    monkeypatch.setattr(ModelRunner, "forward", calling)
    talks = asked("talks", "Say something long.", max_tokens=200)
    looks = asked("looks", shows(work, *seeds), max_tokens=2)
    together(engine.engine, talks, looks)
    first, second, third = (number for number, what in enumerate(done) if what == "picture")
    assert "words" in done[first:second]
    assert "words" in done[second:third]


def test_others_go_on_between_two_pictures(
    engines: tuple[ScriptedEngine, ScriptedEngine], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_while_another_talks(engines[0], work, (3, 4, 5), monkeypatch)


def test_planted_pictures_at_one_go_are_seen(
    engines: tuple[ScriptedEngine, ScriptedEngine], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant(machinery: Machinery) -> Any:
        vision = machinery.runner._model
        monkeypatch.setattr(vision, "between", None)

    engines[0].engine.call(plant)
    with pytest.raises(AssertionError):
        look_while_another_talks(engines[0], work, (6, 7, 8), monkeypatch)
