"""What comes out of a load, what it costs nobody (no network, no chatter), and how a broken folder is named."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlxchat.engine import loader, models
from mlxchat.engine.weights import read_header
from mlxchat.errors import ModelError, ModelIncomplete, ModelUnsupported
from support.load_process import load_in_a_process
from support.model_folders import as_folder, edit_json, make_folder

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("m") / "tiny")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> loader.LoadedModel:
    return loader.load(as_folder(folder))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return make_folder(tmp_path / "copy")


def test_the_record(loaded: loader.LoadedModel) -> None:
    assert loaded.name == "tiny"
    assert loaded.eos_token_ids == {2, 0}
    assert loaded.generation_config["eos_token_id"] == [2, 0]
    assert loaded.context_limit == 512
    assert len(loaded.fingerprint) == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.name = "x"  # type: ignore[misc]


@pytest.mark.skipif(sys.platform != "linux", reason="Metal keeps the model's dtype")
def test_on_linux_everything_is_float32(loaded: loader.LoadedModel) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    parameters = [array for _, array in tree_flatten(loaded.model.parameters())]
    assert {array.dtype for array in parameters} == {mx.float32}
    assert loaded.dtype == "float32"
    assert loaded.weight_bytes == 4 * sum(array.size for array in parameters)


def test_kv_bytes_per_token_is_what_the_cache_grows_by(loaded: loader.LoadedModel) -> None:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(loaded.model)
    loaded.model(mx.array([[1, 2, 3]]), cache=cache)
    rows = [(c.keys[..., :3, :], c.values[..., :3, :]) for c in cache]
    assert sum(k.nbytes + v.nbytes for k, v in rows) == 3 * (loaded.kv_bytes_per_token or 0)


def test_kv_bytes_count_global_layers_only(tmp_path: Path) -> None:
    gemma = loader.load(as_folder(make_folder(tmp_path / "gemma", "gemma3")))
    llama = loader.load(as_folder(make_folder(tmp_path / "llama")))
    assert gemma.kv_bytes_per_token is not None
    assert llama.kv_bytes_per_token == 6 * gemma.kv_bytes_per_token
    assert gemma.eos_token_ids == {1, 5}


def test_the_weights_are_the_files_weights(loaded: loader.LoadedModel, folder: Path) -> None:
    import mlx.core as mx

    stored = mx.load(str(folder / "model.safetensors"))["model.embed_tokens.weight"]
    found = loaded.model.model.embed_tokens.weight
    assert mx.array_equal(found, stored.astype(found.dtype))


def fingerprint_of(path: Path) -> str:
    return loader.load(as_folder(path)).fingerprint


def _touch(path: Path) -> None:
    os.utime(path / "model.safetensors", ns=(1, 1))


def _other_weights(path: Path) -> None:
    file = path / "model.safetensors"
    stat = file.stat()
    header = bytearray(file.read_bytes())
    position = header.index(b'"format"')
    header[position : position + 8] = b'"Format"'
    file.write_bytes(header)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _rename(path: Path) -> None:
    (path / "model.safetensors").rename(path / "model-x.safetensors")


@pytest.mark.parametrize(
    "change",
    [_touch, _other_weights, _rename, lambda path: edit_json(path / "config.json", note=1)],
    ids=["mtime", "header", "name", "config"],
)
def test_the_fingerprint_moves_with(change: Callable[[Path], None], copy: Path) -> None:
    before = fingerprint_of(copy)
    assert fingerprint_of(copy) == before
    change(copy)
    assert fingerprint_of(copy) != before


def _cut(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def _scramble(path: Path) -> None:
    (path / "model.safetensors").write_bytes(b"\xff" * 5000)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (_cut, ModelIncomplete, "cut short"),
        (_scramble, ModelIncomplete, r"model\.safetensors"),
        (lambda path: (path / "tokenizer.json").write_text("{"), ModelError, "copy"),
        (lambda path: edit_json(path / "config.json", num_hidden_layers=9), ModelIncomplete, "copy"),
        (lambda path: edit_json(path / "config.json", hidden_size="x"), ModelError, "copy"),
        (lambda path: edit_json(path / "config.json", model_type="nothing"), ModelUnsupported, "nothing"),
    ],
    ids=["cut", "scrambled", "tokenizer", "layers", "type", "architecture"],
)
def test_a_broken_folder_is_one_line(
    change: Callable[[Path], None], error: type[ModelError], said: str, copy: Path
) -> None:
    change(copy)
    with pytest.raises(error, match=said) as caught:
        loader.load(as_folder(copy))
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_broken_generation_config_costs_only_its_defaults(copy: Path) -> None:
    (copy / "generation_config.json").write_text("{")
    assert loader.load(as_folder(copy)).generation_config == {}


def test_a_header_tells_the_size_in_memory(folder: Path) -> None:
    file = read_header(folder / "model.safetensors")
    assert file.memory_bytes(4) == 2 * file.memory_bytes(None)
    assert models.weight_files(folder) == [folder / "model.safetensors"]


def test_loading_opens_no_socket_and_says_nothing(folder: Path) -> None:
    done = load_in_a_process(str(folder))
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_planted_fault_a_socket_is_noticed(folder: Path) -> None:
    assert load_in_a_process(str(folder), plant=True).stdout.startswith("1 ")


def test_an_architecture_that_exits_on_import_is_an_error_not_an_exit(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx-lm's olmo ends the process where a package of its own is absent."""

    def leave(*arguments: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(loader, "_load_model", leave)
    with pytest.raises(ModelUnsupported, match="package"):
        loader.load(as_folder(copy))
