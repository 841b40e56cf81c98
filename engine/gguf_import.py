"""Turn a GGUF file into a folder that mlx-lm loads: weights, config, tokenizer, template, stop tokens.

Weights are dequantized and kept in half precision. Llama's q and k rows are stored interleaved for another rotary
layout and are put back; Gemma's norm weights are stored with one added.

Half precision is float16 where the residual stream stays within its range (SmolLM2 peaks at 22,600: logits then differ
from those of the dequantized float32 weights by 0.03 at most, by 0.18 in bfloat16) and bfloat16 where it doesn't (Gemma
3 270M reaches 104,000).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelIncomplete, ModelUnsupported
from .gguf_tokenizer import CONTROL, Vocabulary, build

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

_ROOT = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
}
_BLOCK_BY_ARCHITECTURE = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
_DTYPES = {"llama": "float16", "gemma3": "bfloat16"}
_STOPS = ("<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<eos>")


@dataclass(frozen=True)
class Source:
    """A GGUF file's metadata, by key."""

    fields: dict[str, Any]

    @property
    def architecture(self) -> str:
        """`llama` or `gemma3`."""
        return str(self.fields["general.architecture"])

    def need(self, key: str) -> Any:
        """A field of the model's architecture; ModelIncomplete if the file lacks it."""
        return self.full(f"{self.architecture}.{key}")

    def full(self, key: str) -> Any:
        """A field by its whole key; ModelIncomplete if the file lacks it."""
        if key not in self.fields:
            raise ModelIncomplete(f"the GGUF has no field {key}", "fetch the model again")
        return self.fields[key]


def convert(gguf_file: Path, folder: Path, *, template: str | None, sampling: dict[str, Any]) -> None:
    """Write an MLX model folder from `gguf_file` into the existing, empty `folder`.

    template  the chat template to use when the file has none; sampling goes into generation_config.json.
    Raises ModelUnsupported for another architecture or tokenizer, ModelIncomplete for a broken file.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf_file)
    except (ValueError, IndexError, OSError) as error:
        raise ModelIncomplete(f"{gguf_file.name} is not a whole GGUF file: {error}", "fetch the model again") from error
    source = Source({key: field.contents() for key, field in reader.fields.items()})
    if source.architecture not in _BLOCK_BY_ARCHITECTURE:
        raise ModelUnsupported(
            f"GGUF files of architecture {source.architecture} can't be converted",
            "use the model's MLX or safetensors repository instead",
        )
    weights = dict(_weights(reader, source))
    vocabulary = _vocabulary(source)
    build(vocabulary).save(str(folder / "tokenizer.json"), pretty=False)
    stops = _stop_ids(source, vocabulary)
    _save_weights(folder / "model.safetensors", weights, _DTYPES[source.architecture])
    _write_json(folder / "config.json", _config(source, vocabulary, tied="lm_head.weight" not in weights))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(source, vocabulary))
    _write_json(folder / "generation_config.json", {"eos_token_id": stops, **sampling})
    chat_template = source.fields.get("tokenizer.chat_template") or template
    if chat_template:
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def _weights(reader: GGUFReader, source: Source) -> Iterator[tuple[str, NDArray[np.uint16]]]:
    """Each tensor as (MLX name, the bits of its half-precision values [out, in])."""
    import gguf
    import numpy as np

    heads = {"attn_q": source.need("attention.head_count"), "attn_k": source.need("attention.head_count_kv")}
    for tensor in reader.tensors:
        name = mlx_name(str(tensor.name), source.architecture)
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        part = str(tensor.name).split(".")[-2]
        if source.architecture == "llama" and part in heads:
            values = restore_rotary_rows(values, int(heads[part]))
        elif source.architecture == "gemma3" and part.endswith("norm"):
            values = values - 1.0
        yield name, half_bits(values, _DTYPES[source.architecture])


def mlx_name(name: str, architecture: str) -> str:
    """The mlx-lm name of a GGUF tensor; ModelUnsupported if it has none."""
    parts = name.split(".")
    block = _BLOCK | _BLOCK_BY_ARCHITECTURE[architecture]
    if len(parts) == 2 and parts[0] in _ROOT:
        return f"{_ROOT[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in block:
        return f"model.layers.{parts[1]}.{block[parts[2]]}.{parts[3]}"
    raise ModelUnsupported(f"the GGUF's tensor {name} is not part of a plain {architecture} model", "use another model")


def restore_rotary_rows(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the interleaving of each head's two rotary halves. `rows` is [heads · head_dim, in]."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def half_bits(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint16]:
    """The bits of `values` in float16 or bfloat16, rounded to nearest, ties to even."""
    import numpy as np

    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _save_weights(path: Path, weights: dict[str, NDArray[np.uint16]], dtype: str) -> None:
    """One safetensors file. Written from raw bits: numpy has no bfloat16."""
    import numpy as np
    from safetensors import TensorSpec, serialize_file

    held = {name: np.ascontiguousarray(bits) for name, bits in weights.items()}
    specs = {
        name: TensorSpec(dtype=dtype, shape=list(bits.shape), data_ptr=bits.ctypes.data, data_len=bits.nbytes)
        for name, bits in held.items()
    }
    serialize_file(specs, path, {"format": "mlx"})


def _vocabulary(source: Source) -> Vocabulary:
    fields = source.fields
    prefix = "tokenizer.ggml."
    return Vocabulary(
        kind=str(source.full(prefix + "model")),
        pre=str(fields.get(prefix + "pre", "default")),
        tokens=source.full(prefix + "tokens"),
        types=source.full(prefix + "token_type"),
        scores=fields.get(prefix + "scores", ()),
        merges=fields.get(prefix + "merges", ()),
        bos=int(source.full(prefix + "bos_token_id")),
        unknown=int(fields.get(prefix + "unknown_token_id", 0)),
        add_bos=bool(fields.get(prefix + "add_bos_token", False)),
    )


def _stop_ids(source: Source, vocabulary: Vocabulary) -> list[int]:
    """The file's end token first, then every other token that ends a turn or a text."""
    first = int(source.full("tokenizer.ggml.eos_token_id"))
    others = [i for i, t in enumerate(vocabulary.tokens) if t in _STOPS and vocabulary.types[i] == CONTROL]
    return [first, *(i for i in others if i != first)]


def _config(source: Source, vocabulary: Vocabulary, *, tied: bool) -> dict[str, Any]:
    """config.json with the names that mlx-lm's ModelArgs read."""
    heads = int(source.need("attention.head_count"))
    hidden = int(source.need("embedding_length"))
    fields = source.fields
    config: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": int(source.need("block_count")),
        "intermediate_size": int(source.need("feed_forward_length")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(source.need("attention.head_count_kv")),
        "head_dim": int(fields.get(f"{source.architecture}.attention.key_length", hidden // heads)),
        "rms_norm_eps": _tidy(source.need("attention.layer_norm_rms_epsilon")),
        "rope_theta": _tidy(source.need("rope.freq_base")),
        "max_position_embeddings": int(source.need("context_length")),
        "vocab_size": len(vocabulary.tokens),
        "tie_word_embeddings": tied,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": int(source.full("tokenizer.ggml.eos_token_id")),
        "torch_dtype": _DTYPES[source.architecture],
    }
    if source.architecture == "llama":
        return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **config}
    return {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], **config, **_windows(source)}


def _windows(source: Source) -> dict[str, Any]:
    """Gemma 3's local layers: five with a window, then a global one. The scale and local base are the family's."""
    pattern = 6
    layers = range(1, int(source.need("block_count")) + 1)
    return {
        "sliding_window": int(source.need("attention.sliding_window")),
        "sliding_window_pattern": pattern,
        "layer_types": ["full_attention" if i % pattern == 0 else "sliding_attention" for i in layers],
        "query_pre_attn_scalar": int(source.need("attention.key_length")),
        "rope_local_base_freq": 10000.0,
    }


def _tidy(value: float) -> float:
    """A float32 as the decimal it was written as (9.999999747378752e-06 is 1e-05)."""
    return float(f"{value:.6g}")


def _tokenizer_config(source: Source, vocabulary: Vocabulary) -> dict[str, Any]:
    prefix = "tokenizer.ggml."
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(source.need("context_length")),
    }
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    for name, key in names.items():
        index = source.fields.get(f"{prefix}{key}_token_id")
        if index is not None:
            config[name] = vocabulary.tokens[int(index)]
    return config


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
