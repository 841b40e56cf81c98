"""The converter against files whose right result is known, tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from mlxchat.engine import gguf_import
from mlxchat.errors import ModelIncomplete, ModelUnsupported
from support.gguf_files import TinyGguf, write_gemma3, write_llama

pytestmark = pytest.mark.plain

Write = Callable[..., TinyGguf]


def convert(source: TinyGguf, folder: Path) -> Path:
    folder.mkdir()
    gguf_import.convert(source.path, folder, template="{{ 'plain' }}", sampling={"temperature": 0.5})
    return folder


def stored(folder: Path) -> dict[str, np.ndarray]:
    """The folder's weights as float32."""
    import mlx.core as mx

    weights = mx.load(str(folder / "model.safetensors"))
    return {name: np.array(array.astype(mx.float32)) for name, array in weights.items()}


def differing(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> list[str]:
    assert sorted(expected) == sorted(found)
    return [name for name in expected if not np.array_equal(expected[name], found[name])]


@pytest.mark.parametrize("write", [write_llama, write_gemma3])
def test_every_tensor_is_what_it_was(write: Write, tmp_path: Path) -> None:
    source = write(tmp_path / "m.gguf")
    assert differing(source.weights, stored(convert(source, tmp_path / "out"))) == []


def test_an_untied_head_is_kept(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "m.gguf", tied=False)
    folder = convert(source, tmp_path / "out")
    assert differing(source.weights, stored(folder)) == []
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False


def test_planted_fault_rotary_rows_left_interleaved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_import, "restore_rotary_rows", lambda rows, heads: rows)
    source = write_llama(tmp_path / "m.gguf")
    wrong = differing(source.weights, stored(convert(source, tmp_path / "out")))
    assert wrong
    assert {name.split(".")[-2] for name in wrong} == {"q_proj", "k_proj"}


def test_planted_fault_k_rows_restored_with_the_number_of_q_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gguf_import.restore_rotary_rows
    monkeypatch.setattr(gguf_import, "restore_rotary_rows", lambda rows, heads: real(rows, 4))
    source = write_llama(tmp_path / "m.gguf")
    wrong = differing(source.weights, stored(convert(source, tmp_path / "out")))
    assert {name.split(".")[-2] for name in wrong} == {"k_proj"}


def test_planted_fault_norms_as_stored(tmp_path: Path) -> None:
    source = write_gemma3(tmp_path / "m.gguf")
    faulty = {n: a + 1 if "norm" in n else a for n, a in source.weights.items()}
    wrong = differing(faulty, stored(convert(source, tmp_path / "out")))
    assert all("norm" in name for name in wrong)
    assert len(wrong) == sum("norm" in name for name in source.weights)


def test_half_bits_round_to_nearest_even() -> None:
    import mlx.core as mx

    random = np.random.default_rng(1)
    values = np.concatenate([random.normal(size=4000), [0.0, -0.0, 1e-30, 1.00390625, 1.01171875]]).astype(np.float32)
    for name, dtype in (("float16", mx.float16), ("bfloat16", mx.bfloat16)):
        expected = np.array(mx.array(values).astype(dtype).view(mx.uint16))
        assert np.array_equal(gguf_import.half_bits(values, name), expected), name


def test_quantized_tensors_are_dequantized(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(size=(4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    kind = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quantize(rows, kind)
    writer.add_tensor("blk.0.ffn_up.weight", packed, raw_dtype=kind)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = gguf.GGUFReader(tmp_path / "q.gguf")
    source = gguf_import.Source({key: field.contents() for key, field in reader.fields.items()})
    ((name, bits),) = gguf_import._weights(reader, source)
    assert name == "model.layers.0.mlp.up_proj.weight"
    assert np.array_equal(bits.view(np.float16), gguf.dequantize(packed, kind).astype(np.float16))


def test_llama_files_beside_the_weights(tmp_path: Path) -> None:
    folder = convert(write_llama(tmp_path / "m.gguf"), tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    wanted = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    }
    assert {key: config[key] for key in wanted} == wanted
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2, 0], "temperature": 0.5}
    assert "im_start" in (folder / "chat_template.jinja").read_text()
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["eos_token"] == "<|im_end|>"


def test_gemma_files_beside_the_weights(tmp_path: Path) -> None:
    folder = convert(write_gemma3(tmp_path / "m.gguf"), tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "gemma3_text"
    assert config["sliding_window"] == 16
    assert config["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]
    assert config["query_pre_attn_scalar"] == 8
    assert config["torch_dtype"] == "bfloat16"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [1, 5]
    assert (folder / "chat_template.jinja").read_text() == "{{ 'plain' }}"


def test_another_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_tensor("x.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnsupported, match="mamba"):
        gguf_import.convert(tmp_path / "m.gguf", tmp_path, template=None, sampling={})


def test_an_unknown_tensor_is_named() -> None:
    with pytest.raises(ModelUnsupported, match=r"blk\.0\.ffn_gate_exps"):
        gguf_import.mlx_name("blk.0.ffn_gate_exps.weight", "llama")


@pytest.mark.parametrize("keep", [0, 3, 200, 0.5])
def test_a_cut_file_is_incomplete(keep: float, tmp_path: Path) -> None:
    source = write_llama(tmp_path / "m.gguf")
    whole = source.path.read_bytes()
    source.path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    with pytest.raises(ModelIncomplete):
        convert(source, tmp_path / "out")


@pytest.mark.parametrize("write", [write_llama, write_gemma3])
def test_mlx_lm_runs_the_folder_as_it_runs_the_weights(write: Write, tmp_path: Path) -> None:
    import mlx.core as mx
    from mlx_lm.utils import _get_classes, load_model

    source = write(tmp_path / "m.gguf")
    folder = convert(source, tmp_path / "out")
    loaded, config = load_model(folder)
    loaded.set_dtype(mx.float32)
    module, arguments = _get_classes(config)
    reference = module(arguments.from_dict(config))
    weights = reference.sanitize({name: mx.array(array) for name, array in source.weights.items()})
    reference.load_weights(list(weights.items()))
    ids = mx.array([[5, 9, 17, 33, 4, 8]])
    assert mx.array_equal(loaded(ids), reference(ids))
