"""A folder's own code never runs, and a model that can't fit isn't started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlxchat.engine import guard, loader
from mlxchat.errors import ModelRefused, ModelTooLarge, ModelUnsupported
from support.model_folders import as_folder, edit_json, make_folder

pytestmark = pytest.mark.plain

CODE = "from pathlib import Path\nPath({marker!r}).write_text('ran')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "tiny")


@pytest.fixture
def marker(tmp_path: Path, folder: Path) -> Path:
    """A file that exists once any of the folder's Python files ran."""
    marker = tmp_path / "marker"
    for name in ("custom.py", "tokenization_custom.py", "configuration_custom.py", "modeling_custom.py", "conftest.py"):
        (folder / name).write_text(CODE.format(marker=str(marker)))
    return marker


def test_the_marker_file_works(folder: Path, marker: Path) -> None:
    subprocess.run([sys.executable, str(folder / "custom.py")], check=True)
    assert marker.exists()


def test_model_file_is_refused_and_never_runs(folder: Path, marker: Path) -> None:
    edit_json(folder / "config.json", model_file="custom.py")
    with pytest.raises(ModelRefused, match=r"custom\.py"):
        loader.load(as_folder(folder))
    assert not marker.exists()


def test_auto_map_with_a_known_architecture_loads_and_runs_nothing(folder: Path, marker: Path) -> None:
    edit_json(
        folder / "config.json",
        auto_map={"AutoConfig": "configuration_custom.Custom", "AutoModelForCausalLM": "modeling_custom.Custom"},
    )
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_custom.Custom", None]})
    before = sorted(sys.path)
    loaded = loader.load(as_folder(folder))
    assert loaded.config["model_type"] == "llama"
    assert loaded.tokenizer.encode("hello", add_special_tokens=False)
    assert not marker.exists()
    assert sorted(sys.path) == before


def test_planted_fault_without_the_view_transformers_would_ask_for_the_code(folder: Path, marker: Path) -> None:
    """The key that the view takes out is one that matters: read from the folder itself, it is acted upon."""
    from mlx_lm.utils import load_tokenizer

    edit_json(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["tokenization_custom.Custom", None]},
        tokenizer_class="Custom",
    )
    with pytest.raises(ValueError, match="custom code"):
        load_tokenizer(folder, {"trust_remote_code": False})


def test_auto_map_with_an_unknown_architecture_is_refused(folder: Path, marker: Path) -> None:
    edit_json(folder / "config.json", model_type="brandnew", auto_map={"AutoConfig": "configuration_custom.C"})
    with pytest.raises(ModelRefused, match="brandnew"):
        loader.load(as_folder(folder))
    assert not marker.exists()


def test_an_unknown_architecture_is_named(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="brandnew")
    with pytest.raises(ModelUnsupported, match="brandnew"):
        loader.load(as_folder(folder))


def test_an_architecture_that_only_mlx_vlm_has_is_unsupported_not_refused(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="molmo", auto_map={"AutoConfig": "configuration_custom.C"})
    with pytest.raises(ModelUnsupported) as caught:
        loader.load(as_folder(folder))
    assert "vision" in caught.value.hint


@pytest.mark.parametrize("model_type", ["cache", "base", "../x", "os", "switch_layers", "a.b", "", None, 3])
def test_a_model_type_that_is_no_model_is_unsupported(model_type: object, folder: Path) -> None:
    edit_json(folder / "config.json", model_type=model_type)
    with pytest.raises(ModelUnsupported):
        guard.check_code(as_folder(folder))


def test_supported_agrees_with_mlx_lm() -> None:
    """The table read from mlx-lm's source is the one it uses, and what it lists can be imported."""
    import mlx_lm
    from mlx_lm.utils import MODEL_REMAPPING, _get_classes

    for name, target in MODEL_REMAPPING.items():
        assert guard._remapped("mlx_lm", name) == target
    for name in (*MODEL_REMAPPING, *(file.stem for file in Path(mlx_lm.__file__).parent.glob("models/*.py"))):
        assert guard.is_supported(name) == _imports(name, _get_classes), name


def _imports(name: str, get_classes: object) -> bool:
    try:
        get_classes({"model_type": name})  # type: ignore[operator]
    except (ValueError, AttributeError):
        return False
    except SystemExit:  # one module of mlx-lm exits unless a package of its own is installed
        return True
    return True


def test_the_view_shows_all_but_code(folder: Path, marker: Path) -> None:
    (folder / "native.so").write_bytes(b"")
    (folder / "sub").mkdir()
    edit_json(folder / "config.json", auto_map={"A": "b"}, text_config={"auto_map": {"A": "b"}, "kept": 1})
    with guard.view(as_folder(folder)) as shown:
        names = {entry.name for entry in shown.iterdir()}
        config = json.loads((shown / "config.json").read_text())
        assert (shown / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert "model.safetensors" in names
    assert not [name for name in names if name.endswith((".py", ".so"))]
    assert "sub" not in names
    assert "auto_map" not in config
    assert config["text_config"] == {"kept": 1}
    assert not shown.exists()


def test_a_folder_with_odd_characters_in_its_name_loads(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "a [b] *c")
    assert loader.load(as_folder(folder)).dtype


def test_memory_is_checked_before_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "memory_limit", lambda: (1000, "and this machine has free"))
    monkeypatch.setattr(loader, "_load_model", lambda shown: pytest.fail("loaded"))
    with pytest.raises(ModelTooLarge, match="weights"):
        loader.load(as_folder(folder))


def test_memory_counts_the_kv_cache_at_the_expected_length() -> None:
    limit, _ = guard.memory_limit()
    guard.check_memory("m", limit // 2, 0)
    with pytest.raises(ModelTooLarge):
        guard.check_memory("m", limit // 2, limit)
