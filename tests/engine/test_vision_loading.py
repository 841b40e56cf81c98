"""Which library runs a model, what its folder may not do, and what happens without a processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine import guard, vision_loader
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import TurnDone, TurnFailed
from mlxchat.engine.loader import load
from mlxchat.engine.messages import ImagePart, user
from mlxchat.engine.models import ModelFolder, read_config
from mlxchat.engine.options import CacheOptions, EngineOptions
from mlxchat.engine.weights import WeightFile, read_header
from mlxchat.errors import ModelRefused, ModelUnsupported
from support import vision_models
from support.model_folders import edit_json
from support.vision_rig import OPTIONS, says

pytestmark = pytest.mark.exact


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return vision_models.make(tmp_path / "tiny", "qwen2_vl")


def choice(folder: Path, **changes: Any) -> bool:
    files = [read_header(folder / "model.safetensors")]
    return vision_loader.loads_vision({**read_config(folder), **changes}, files)


def test_the_choice_is_the_folders(folder: Path) -> None:
    assert choice(folder)
    assert not choice(folder, vision_config=None)
    assert not choice(folder, model_type="no_such_family")
    only_words = WeightFile(folder, 0, 0, b"", {"language_model.model.norm.weight": {"dtype": "F32"}})
    assert not vision_loader.loads_vision(read_config(folder), [only_words])


def test_no_code_of_the_folder_is_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w').close()\nclass Thing: pass\n"
    for name in ("modeling.py", "processing.py", "tokenization.py"):
        (folder / name).write_text(code)
    edit_json(folder / "config.json", auto_map={"AutoModel": "modeling.Thing"})
    edit_json(folder / "preprocessor_config.json", auto_map={"AutoProcessor": "processing.Thing"})
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization.Thing", None]})
    model = load(ModelFolder("tiny", folder, "folder"))
    assert model.is_vision
    assert model.processor is not None, model.no_processor
    assert not trace.exists()
    edit_json(folder / "config.json", model_file="modeling.py")
    with pytest.raises(ModelRefused):
        load(ModelFolder("tiny", folder, "folder"))
    assert not trace.exists()


def test_an_unknown_vision_architecture_is_refused_if_it_brings_code(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="no_such_family", auto_map={"AutoModel": "modeling.Thing"})
    with pytest.raises(ModelRefused, match="never runs"):
        guard.check_code(ModelFolder("tiny", folder, "folder"))


def test_weights_that_would_be_rewritten_are_not_loaded(folder: Path) -> None:
    file = WeightFile(folder, 0, 0, b"", {"visual.scale": {"dtype": "F8_E8M0"}})
    with pytest.raises(ModelUnsupported, match="by changing the file"):
        vision_loader.check_weights("tiny", [file])


def test_the_processors_settings_belong_to_the_key(folder: Path) -> None:
    before = load(ModelFolder("tiny", folder, "folder")).processor_settings
    edit_json(folder / "preprocessor_config.json", max_pixels=7840)
    assert load(ModelFolder("tiny", folder, "folder")).processor_settings != before


def test_a_template_in_a_file_of_its_own(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert load(ModelFolder("tiny", folder, "folder")).tokenizer.has_chat_template


def test_without_a_processor_the_model_talks_and_says_why_it_sees_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision_loader, "load_processor", lambda shown: (None, "it needs torch"))
    engine = Engine.start(EngineOptions(str(folder), cache=CacheOptions(enabled=False)), print)
    try:
        assert not engine.info.vision
        chat = Chat(engine)
        part = ImagePart(str(vision_models.save_picture(tmp_path / "a.png", 60, 60)))
        (failed,) = chat.ask(says("What is it?", part), OPTIONS)
        assert isinstance(failed, TurnFailed)
        assert failed.error.message == "tiny's picture processor can't be loaded: it needs torch"
        *_, done = chat.ask(user("Hello."), OPTIONS)
        assert isinstance(done, TurnDone)
    finally:
        engine.close()
