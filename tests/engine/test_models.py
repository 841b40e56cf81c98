"""Which folder a name means, and what is said when it means none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mlxchat.engine import folders, models
from mlxchat.engine.aliases import EMBEDDED
from mlxchat.errors import DownloadError, ModelIncomplete, ModelNotFound
from support.model_folders import huggingface_snapshot, isolate, make_folder

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny") / "tiny-llama")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return tmp_path


def pretend_pulled(tiny: Path, alias: str = "smollm2") -> Path:
    path = folders.models_dir() / alias
    shutil.copytree(tiny, path)
    made = {"format": models.MADE_FORMAT, "alias": alias, "gguf_sha256": EMBEDDED[alias].gguf_sha256}
    (path / models.MADE_BY).write_text(json.dumps(made))
    return path


def test_an_alias_is_its_pulled_folder(home: Path, tiny: Path) -> None:
    path = pretend_pulled(tiny)
    assert models.resolve("smollm2") == models.ModelFolder("smollm2", path, "mlxchat")


def test_an_alias_that_is_not_here_names_the_command(home: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        models.resolve("smollm2")
    assert caught.value.hint == "mlxchat models pull smollm2"
    assert "93 MB" in caught.value.message
    assert caught.value.exit_code == 69


def test_a_folder_from_an_older_converter_is_not_the_alias(home: Path, tiny: Path) -> None:
    path = pretend_pulled(tiny)
    (path / models.MADE_BY).write_text(json.dumps({"format": 0}))
    with pytest.raises(ModelNotFound):
        models.resolve("smollm2")


def test_a_path(home: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.resolve(str(tiny)).path == tiny.resolve()
    monkeypatch.chdir(tiny.parent)
    for name in ("tiny-llama", "./tiny-llama"):
        assert models.resolve(name).path == tiny.resolve(), name
    with pytest.raises(ModelNotFound, match="not a folder"):
        models.resolve("./absent")


def test_a_repository_in_the_hub_cache(home: Path, tiny: Path) -> None:
    snapshot = huggingface_snapshot(home, "org/Tiny-4bit", tiny)
    found = models.resolve("org/Tiny-4bit")
    assert (found.path, found.origin, found.name) == (snapshot, "huggingface", "org/Tiny-4bit")


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_the_hub_cache_moves_with_its_variables(
    variable: str, home: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huggingface_snapshot(home, "org/tiny", tiny)
    elsewhere = home / "elsewhere"
    (home / ".cache" / "huggingface").rename(elsewhere)
    with pytest.raises(ModelNotFound):
        models.resolve("org/tiny")
    monkeypatch.setenv(variable, str(elsewhere if variable == "HF_HOME" else elsewhere / "hub"))
    assert models.resolve("org/tiny").path.is_dir()


def test_refs_main_chooses_the_snapshot(home: Path, tiny: Path) -> None:
    main = huggingface_snapshot(home, "org/tiny", tiny, sha="aaa")
    huggingface_snapshot(home, "org/tiny", tiny, sha="bbb", ref=False)
    assert models.resolve("org/tiny").path == main


def test_lm_studio(home: Path, tiny: Path) -> None:
    path = home / ".lmstudio" / "models" / "org" / "tiny"
    path.parent.mkdir(parents=True)
    shutil.copytree(tiny, path)
    assert models.resolve("org/tiny").origin == "lmstudio"


def test_a_unique_part(home: Path, tiny: Path) -> None:
    huggingface_snapshot(home, "org/Qwen3-4B-4bit", tiny)
    huggingface_snapshot(home, "org/Qwen3-4B", tiny)
    huggingface_snapshot(home, "org/gemma-it", tiny)
    assert models.resolve("GEMMA").name == "org/gemma-it"
    assert models.resolve("qwen3-4b").name == "org/Qwen3-4B"
    assert models.resolve("4b-4bit").name == "org/Qwen3-4B-4bit"
    with pytest.raises(ModelNotFound, match="could be any of org/Qwen3-4B, org/Qwen3-4B-4bit"):
        models.resolve("qwen")


def test_a_whole_repository_name_never_means_a_longer_one(home: Path, tiny: Path) -> None:
    huggingface_snapshot(home, "org/Qwen3-4B-4bit", tiny)
    with pytest.raises(ModelNotFound):
        models.resolve("org/Qwen3-4B")


def test_offline_and_unknown_names(home: Path) -> None:
    with pytest.raises(ModelNotFound, match="--offline"):
        models.resolve("org/nothing", offline=True)
    with pytest.raises(ModelNotFound) as caught:
        models.resolve("nothing")
    assert "models list" in caught.value.hint
    with pytest.raises(ModelNotFound) as caught:
        models.resolve("org/nothing")
    assert caught.value.hint == "mlxchat models pull org/nothing"


@pytest.mark.parametrize("name", ["a/b", "mlx-community/Qwen3.5-9B_4bit"])
def test_repository_names(name: str) -> None:
    assert models.is_repository(name)


@pytest.mark.parametrize("name", ["a", "/b", "a/", "a/b/c", "a b/c", "../x", "a/b\n", "a/\x1b"])
def test_names_that_are_no_repository(name: str) -> None:
    assert not models.is_repository(name)


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("config.json", "config.json"),
        ("model.safetensors", "weights"),
        ("tokenizer.json", "tokenizer"),
    ],
)
def test_a_missing_file_is_named(removed: str, said: str, home: Path, tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / removed).unlink()
    (broken / "tokenizer_config.json").unlink()
    with pytest.raises(ModelIncomplete, match=said):
        models.resolve(str(broken))


def test_a_missing_shard_is_named_with_and_without_an_index(home: Path, tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").rename(broken / "model-00001-of-00002.safetensors")
    with pytest.raises(ModelIncomplete, match="model-00002-of-00002"):
        models.resolve(str(broken))
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelIncomplete, match="model-00002-of-00002"):
        models.resolve(str(broken))
    shutil.copy(broken / "model-00001-of-00002.safetensors", broken / "model-00002-of-00002.safetensors")
    assert models.resolve(str(broken)).path == broken


def test_an_interrupted_hub_download_is_incomplete_and_says_how_to_go_on(home: Path, tiny: Path) -> None:
    snapshot = huggingface_snapshot(home, "org/tiny", tiny)
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(ModelIncomplete) as caught:
        models.resolve("org/tiny")
    assert caught.value.hint == "mlxchat models pull org/tiny"


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_broken_config_is_named(text: str, home: Path, tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelIncomplete, match=r"config\.json"):
        models.resolve(str(broken))


def test_ensure_uses_what_is_here_without_a_question(home: Path, tiny: Path) -> None:
    pretend_pulled(tiny)
    assert models.ensure("smollm2").name == "smollm2"
    assert models.ensure(str(tiny)).path == tiny.resolve()


def test_ensure_refuses_where_nobody_can_be_asked(home: Path) -> None:
    for name in ("smollm2", "org/model"):
        with pytest.raises(DownloadError) as caught:
            models.ensure(name)
        assert caught.value.hint == f"mlxchat models pull {name} --yes"
    with pytest.raises(ModelNotFound, match="--offline"):
        models.ensure("smollm2", offline=True, yes=True)
    with pytest.raises(ModelNotFound, match="no model is called"):
        models.ensure("what", yes=True)
