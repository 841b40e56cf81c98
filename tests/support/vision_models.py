"""Small random-weight vision models built from mlx-vlm's own classes: whole folders, processor and tokenizer included.

`python tests/support/vision_models.py FAMILY FOLDER` writes one (`make FAMILY FOLDER` for whoever wants to try it).
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

VisionFamily = Literal[
    "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3", "gemma4", "smolvlm", "idefics3", "lfm2_vl"
]
VOCAB = 1024
_TEMPLATES = Path(__file__).parent / "templates"
_TALK = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_OTHER = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_QWEN = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_TILES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))
_SMOL = ("<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>", "<video>", *_TILES)
_LFM2 = ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>")
_LFM2_TILES = tuple(f"<|img_row_{row}_col_{column}|>" for row in range(1, 4) for column in range(1, 4))

_TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 16384,
    "num_hidden_layers": 3,
}
_SIGLIP: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "patch_size": 14,
}
_MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
_QWEN_PIXELS = {"min_pixels": 784, "max_pixels": 1003520, "temporal_patch_size": 2, "merge_size": 2}


@dataclass(frozen=True)
class Spec:
    """One family: its control tokens, how its template marks a picture, its configs.

    config          config.json but for model_type and the ids of control tokens, which `ids` names by their text
    tokens          what tokenizer_config.json calls some of them
    """

    special: tuple[str, ...]
    image: str
    config: dict[str, Any]
    ids: dict[str, str]
    preprocessor: dict[str, Any]
    processor: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    talk: tuple[str, str, str] = ("<|im_start|>", "<|im_end|>", "assistant")
    begin: str = ""


_QWEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
_GEMMA = ("<start_of_turn>", "<end_of_turn>", "model")


def _qwen(config: dict[str, Any], patch: int, kind: str, image_kind: str) -> Spec:
    return Spec(
        special=_QWEN,
        image=_QWEN_IMAGE,
        config=config,
        ids=_QWEN_IDS,
        preprocessor={
            "image_processor_type": image_kind,
            "processor_class": kind,
            "patch_size": patch,
            **_QWEN_PIXELS,
        },
    )


def _idefics(kind: str) -> Spec:
    # the image is one tile here: longest edge = tile edge; larger ones are cut up
    size = {"longest_edge": 112}
    return Spec(
        special=_SMOL,
        image="<image>",
        config={
            "text_config": {**_TEXT, "model_type": "llama", "rope_theta": 1e4},
            "vision_config": {**_SIGLIP, "model_type": "siglip_vision_model", "image_size": 56, "patch_size": 7},
            "scale_factor": 2,
        },
        ids={"image_token_id": "<image>"},
        preprocessor={
            "image_processor_type": f"{kind}ImageProcessor",
            "processor_class": f"{kind}Processor",
            "size": size,
            "max_image_size": {"longest_edge": 56},
            "do_image_splitting": True,
        },
        processor={"processor_class": f"{kind}Processor", "image_seq_len": 16},
    )


SPECS: dict[VisionFamily, Spec] = {
    "qwen2_vl": _qwen(
        {
            **_TEXT,
            "rope_scaling": _MROPE,
            "tie_word_embeddings": True,
            "vision_config": {
                "model_type": "qwen2_vl",
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": 64,
                "num_heads": 2,
                "patch_size": 14,
            },
        },
        14,
        "Qwen2VLProcessor",
        "Qwen2VLImageProcessor",
    ),
    "qwen2_5_vl": _qwen(
        {
            **_TEXT,
            "rope_scaling": _MROPE,
            "tie_word_embeddings": True,
            "vision_config": {
                "model_type": "qwen2_5_vl",
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 48,
                "out_hidden_size": 64,
                "num_heads": 2,
                "patch_size": 14,
                "window_size": 56,
                "fullatt_block_indexes": [1],
            },
        },
        14,
        "Qwen2_5_VLProcessor",
        "Qwen2VLImageProcessor",
    ),
    "qwen3_vl": _qwen(
        {
            "text_config": {
                **_TEXT,
                "model_type": "qwen3_vl_text",
                "head_dim": 16,
                "rope_theta": 1e6,
                "rope_scaling": {"type": "default", "mrope_section": [4, 2, 2]},
                "tie_word_embeddings": True,
            },
            "vision_config": {
                "model_type": "qwen3_vl",
                "depth": 3,
                "hidden_size": 32,
                "intermediate_size": 48,
                "out_hidden_size": 64,
                "num_heads": 2,
                "patch_size": 16,
                "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0, 1],
            },
        },
        16,
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessor",
    ),
    "qwen3_5": _qwen(
        {
            "text_config": {
                **_TEXT,
                "model_type": "qwen3_5_text",
                "num_hidden_layers": 4,
                "head_dim": 32,
                "linear_num_value_heads": 4,
                "linear_num_key_heads": 2,
                "linear_key_head_dim": 32,
                "linear_value_head_dim": 32,
                "linear_conv_kernel_dim": 4,
                "full_attention_interval": 4,
                "tie_word_embeddings": True,
                "rope_parameters": {
                    "type": "default",
                    "mrope_section": [2, 1, 1],
                    "rope_theta": 100000,
                    "partial_rotary_factor": 0.25,
                },
            },
            "vision_config": {
                "model_type": "qwen3_5",
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 48,
                "out_hidden_size": 64,
                "num_heads": 2,
                "patch_size": 16,
                "num_position_embeddings": 64,
            },
        },
        16,
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessor",
    ),
    "gemma3": Spec(
        special=(
            "<pad>",
            "<bos>",
            "<start_of_turn>",
            "<end_of_turn>",
            "<start_of_image>",
            "<end_of_image>",
            "<image_soft_token>",
        ),
        image="<start_of_image>",
        config={
            "text_config": {
                **_TEXT,
                "model_type": "gemma3_text",
                "num_hidden_layers": 4,
                "head_dim": 16,
                "sliding_window": 128,
                "sliding_window_pattern": 2,
                "query_pre_attn_scalar": 16,
                "mm_tokens_per_image": 16,
            },
            "vision_config": {**_SIGLIP, "model_type": "siglip_vision_model", "image_size": 112},
            "hidden_size": 64,
            "mm_tokens_per_image": 16,
        },
        ids={"image_token_index": "<image_soft_token>", "pad_token_id": "<pad>"},
        preprocessor={
            "image_processor_type": "Gemma3ImageProcessor",
            "processor_class": "Gemma3Processor",
            "size": {"height": 112, "width": 112},
            "do_convert_rgb": True,
        },
        processor={"processor_class": "Gemma3Processor", "image_seq_length": 16},
        tokens={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
        talk=_GEMMA,
        begin="<bos>",
    ),
    "gemma4": Spec(
        special=(
            "<pad>",
            "<bos>",
            "<|turn>",
            "<turn|>",
            "<|image>",
            "<|image|>",
            "<image|>",
            "<|audio|>",
            "<|video|>",
        ),
        image="<|image|>",
        config={
            "text_config": {
                **_TEXT,
                "model_type": "gemma4_text",
                "num_hidden_layers": 4,
                "head_dim": 16,
                "global_head_dim": 32,
                "vocab_size_per_layer_input": VOCAB,
                "num_kv_shared_layers": 2,
                "hidden_size_per_layer_input": 16,
                "sliding_window": 128,
                "sliding_window_pattern": 2,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "use_bidirectional_attention": "vision",
            },
            "vision_config": {
                "model_type": "gemma4_vision",
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "global_head_dim": 16,
                "default_output_length": 24,
                "patch_size": 8,
                "position_embedding_size": 256,
                "pooling_kernel_size": 3,
            },
            "audio_config": None,
            "hidden_size": 64,
        },
        ids={
            "image_token_id": "<|image|>",
            "audio_token_id": "<|audio|>",
            "video_token_id": "<|video|>",
            "boi_token_id": "<|image>",
            "eoi_token_id": "<image|>",
            "pad_token_id": "<pad>",
        },
        preprocessor={"processor_class": "Gemma4Processor"},
        processor={
            "processor_class": "Gemma4Processor",
            "image_processor": {"patch_size": 8, "max_soft_tokens": 24, "pooling_kernel_size": 3},
        },
        tokens={
            "boi_token": "<|image>",
            "eoi_token": "<image|>",
            "image_token": "<|image|>",
            "audio_token": "<|audio|>",
            "video_token": "<|video|>",
        },
        talk=("<|turn>", "<turn|>", "model"),
        begin="<bos>",
    ),
    "smolvlm": _idefics("SmolVLM"),
    "idefics3": _idefics("Idefics3"),
    "lfm2_vl": Spec(
        special=(*_LFM2, *_LFM2_TILES),
        image="<image>",
        config={
            "text_config": {
                **_TEXT,
                "model_type": "lfm2",
                "num_hidden_layers": 4,
                "norm_eps": 1e-5,
                "conv_bias": False,
                "conv_L_cache": 3,
                "block_dim": 64,
                "block_ff_dim": 96,
                "block_multiple_of": 32,
                "block_ffn_dim_multiplier": 1.0,
                "block_auto_adjust_ff_dim": False,
                "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            },
            "vision_config": {**_SIGLIP, "model_type": "lfm2_vl", "patch_size": 16, "num_patches": 64},
            "projector_hidden_size": 64,
            "downsample_factor": 2,
            "encoder_patch_size": 16,
        },
        ids={"image_token_id": "<image>"},
        preprocessor={
            "image_processor_type": "Lfm2VlImageProcessor",
            "processor_class": "Lfm2VlProcessor",
            "tile_size": 64,
            "min_image_tokens": 4,
            "max_image_tokens": 16,
            "encoder_patch_size": 16,
            "downsample_factor": 2,
        },
        tokens={
            "image_token": "<image>",
            "image_start_token": "<|image_start|>",
            "image_end_token": "<|image_end|>",
            "image_thumbnail_token": "<|img_thumbnail|>",
        },
    ),
}
FAMILIES: tuple[VisionFamily, ...] = tuple(SPECS)


_WIDE = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_heads")
_WIDE_TOO = ("embed_dim", "out_hidden_size", "block_dim", "block_ff_dim", "projector_hidden_size")


def _widened(config: Any, scale: int) -> Any:
    """The config with everything `scale` times as wide; heads are as wide as before, there are more of them."""
    if not isinstance(config, dict):
        return config
    wide = (*_WIDE, *_WIDE_TOO)
    return {k: v * scale if k in wide and isinstance(v, int) else _widened(v, scale) for k, v in config.items()}


def make(folder: Path, family: VisionFamily, seed: int = 0, scale: int = 1) -> Path:
    """A complete model folder of a tiny model of `family`, or of one `scale` times as wide."""
    from support import tiny_tokenizer

    spec = SPECS[family]
    opening, closing, model = spec.talk
    special = tuple(dict.fromkeys((*_TALK, *spec.special)))
    text = tiny_tokenizer.tokenizer_json(special, _OTHER, 640)
    ids = Tokenizer.from_str(text).get_vocab()
    template = (_TEMPLATES / "vision.jinja").read_text(encoding="utf-8")
    for name, value in (("@OPEN@", opening), ("@CLOSE@", closing), ("@MODEL@", model), ("@IMAGE@", spec.image)):
        template = template.replace(name, value)
    tiny_tokenizer.write(folder, text, _tokenizer_config(spec, closing), template)
    config = _widened(json.loads(json.dumps(spec.config)), scale)
    config.update(model_type=family, architectures=["Tiny"], eos_token_id=[ids[closing]], vocab_size=VOCAB)
    config.update({name: ids[token] for name, token in spec.ids.items()})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(spec.preprocessor), encoding="utf-8")
    if spec.processor:
        (folder / "processor_config.json").write_text(json.dumps(spec.processor), encoding="utf-8")
    weights = dict(tree_flatten(build(config, family, seed).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder


def _tokenizer_config(spec: Spec, closing: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": closing,
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    if spec.begin:
        config["bos_token"] = spec.begin
    if spec.tokens:
        config["extra_special_tokens"] = spec.tokens
    return config


def build(config: dict[str, Any], family: VisionFamily, seed: int = 0) -> Any:
    """The model of a config, with weights drawn at a scale that keeps logits lively and pictures telling."""
    from mlx_vlm.utils import update_module_configs

    package = importlib.import_module(f"mlx_vlm.models.{family}")
    config = json.loads(json.dumps(config))
    config.setdefault("text_config", {})
    config.setdefault("vision_config", {})
    made = package.ModelConfig.from_dict(config)
    made = update_module_configs(made, package, config, ["text", "vision", "projector"])
    model = package.Model(made)
    generator = np.random.default_rng(seed)
    drawn = []
    for name, value in tree_flatten(model.parameters()):
        if mx.issubdtype(value.dtype, mx.floating):
            noise = generator.standard_normal(value.shape).astype(np.float32) * (0.25 if value.ndim > 1 else 0.1)
            one = value.ndim == 1 and "norm" in name and name.endswith("weight") and family != "gemma3"
            value = mx.array(1 + noise if one else noise)
        drawn.append((name, value))
    model.load_weights(drawn)
    mx.eval(model.parameters())
    return model


def picture(width: int, height: int, seed: int = 0) -> Any:
    """A PIL picture of soft random colours: two seeds never look alike after scaling."""
    from PIL import Image

    coarse = np.random.default_rng(seed).integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)


def save_picture(file: Path, width: int, height: int, seed: int = 0) -> Path:
    """The same as a PNG file."""
    picture(width, height, seed).save(file)
    return file


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    print(make(Path(sys.argv[2]), sys.argv[1]))  # type: ignore[arg-type]
