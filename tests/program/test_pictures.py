"""Pictures through the real command line, one family of models after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlxchat.engine import models
from mlxchat.engine.catalog import describe
from support import vision_models
from support.run_program import run_program
from support.schemas import validate
from support.vision_models import FAMILIES, VisionFamily

pytestmark = pytest.mark.exact

QUICK: tuple[VisionFamily, ...] = ("qwen3_5",)
every_family = pytest.mark.parametrize(
    "family", [pytest.param(one, marks=() if one in QUICK else (pytest.mark.slow,)) for one in FAMILIES]
)


@every_family
def test_a_question_about_a_picture(family: VisionFamily, tmp_path: Path) -> None:
    model = vision_models.make(tmp_path / "model", family)
    picture = vision_models.save_picture(tmp_path / "a.png", 150, 100, seed=1)
    environ = {
        "MLXCHAT_HOME": str(tmp_path / "home"),
        "MLXCHAT_BLAS": "off",
        "MLXCHAT_TEST_CALL_LOG": str(tmp_path / "log"),
    }
    ended = run_program(
        "-m", str(model), "--image", str(picture), "What is in it?", "--json", "--max-tokens", "4", "--temp", "0",
        fake=False, environ=environ,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (stats,) = validate(ended.json)["requests"]
    assert stats["images_encoded"] == 1
    assert 0 < stats["image_tokens"] < stats["prompt_tokens"] == stats["prefill_tokens"]
    entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    digests = {image["digest"] for entry in entries for image in entry["images"]}
    assert len(digests) == 1
    shown = describe(models.resolve(str(model)))
    assert (shown.vision, shown.runs_on, shown.problem) == (True, "mlx-vlm", "")


def test_the_picture_of_a_text_model_is_refused(tmp_path: Path) -> None:
    from support.scripted import model_folder

    model = model_folder(tmp_path / "model", "qwen3", "qwen36")
    picture = vision_models.save_picture(tmp_path / "a.png", 150, 100, seed=1)
    ended = run_program("-m", str(model), "--image", str(picture), "What is in it?", fake=False)
    assert ended.code == 69
    assert ended.error_lines[0].endswith("model is a text model and can't see pictures")
    assert describe(models.resolve(str(model))).runs_on == "mlx-lm"
