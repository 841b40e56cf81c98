"""Tiny byte-level tokenizers with templates that follow the rules of real families. No network."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

Family = Literal["chatml", "qwen3", "qwen36", "gemma3", "gemma4", "gpt_oss", "deepseek_r1"]
FAMILIES: tuple[Family, ...] = ("chatml", "qwen3", "qwen36", "gemma3", "gemma4", "gpt_oss", "deepseek_r1")

_TEMPLATES = Path(__file__).parent / "templates"

_TEXT = """The user asks a question about the cache and the model gives an answer. Think about the window,
the layer, the block and the prefix. A tool call has a name and arguments. What is the capital of France?
Paris is the capital. Hello world, this is a test of the reader and the writer. system user assistant model tool
functions analysis final commentary {"name": "get_weather", "arguments": {"city": "Paris"}} def main(): return 0

One two three.
  Indented text here."""

# (control tokens that are special, control tokens that are not, end of turn, beginning of text)
_WORDS: dict[Family, tuple[tuple[str, ...], tuple[str, ...], str, str | None]] = {
    "chatml": (("<|endoftext|>", "<|im_start|>", "<|im_end|>"), (), "<|im_end|>", None),
    "qwen3": (
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
        "<|im_end|>",
        None,
    ),
    "qwen36": (
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
        "<|im_end|>",
        None,
    ),
    "gemma3": (("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), ("<b>",), "<end_of_turn>", "<bos>"),
    "gemma4": (
        (
            "<pad>",
            "<eos>",
            "<bos>",
            "<|turn>",
            "<turn|>",
            "<|channel>",
            "<channel|>",
            "<|tool>",
            "<tool|>",
            "<|tool_call>",
            "<tool_call|>",
            "<|tool_response>",
            "<tool_response|>",
            '<|"|>',
            "<|think|>",
        ),
        (),
        "<turn|>",
        "<bos>",
    ),
    "gpt_oss": (
        (
            "<|startoftext|>",
            "<|endoftext|>",
            "<|return|>",
            "<|constrain|>",
            "<|channel|>",
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|call|>",
        ),
        (),
        "<|return|>",
        "<|startoftext|>",
    ),
    "deepseek_r1": (
        (
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜User｜>",
            "<｜Assistant｜>",
        ),
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁outputs▁begin｜>",
            "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>",
            "<｜tool▁outputs▁end｜>",
            "<think>",
            "</think>",
        ),
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
    ),
}

# further ids that end an answer, beside the tokenizer's own
_MORE_ENDS: dict[Family, tuple[str, ...]] = {"gpt_oss": ("<|call|>",), "gemma4": ("<|tool_response>",)}


def template_text(family: Family) -> str:
    """The family's chat template."""
    return (_TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")


def build(folder: Path, family: Family, vocab_size: int = 640) -> Path:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja; ids stay below `vocab_size`."""
    return write(folder, _tokenizer_json(family, vocab_size), _config(family), template_text(family))


def write(folder: Path, tokenizer: str, config: dict[str, Any], template: str) -> Path:
    """The three files of a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def load(folder: Path, family: Family, vocab_size: int = 640) -> Any:
    """Build, then load as mlx-lm does."""
    from mlx_lm.tokenizer_utils import load as load_wrapper

    tokenizer = load_wrapper(build(folder, family, vocab_size))
    for text in _MORE_ENDS.get(family, ()):
        tokenizer.add_eos_token(text)
    return tokenizer


def end_ids(family: Family, vocab_size: int = 640) -> list[int]:
    """Ids that end an answer, for a config.json or generation_config.json."""
    tokenizer = Tokenizer.from_str(_tokenizer_json(family, vocab_size))
    vocab = tokenizer.get_vocab()
    return [vocab[text] for text in (_WORDS[family][2], *_MORE_ENDS.get(family, ()))]


def _config(family: Family) -> dict[str, Any]:
    special, _, end, begin = _WORDS[family]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "pad_token": special[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    if begin is not None:
        config["bos_token"] = begin
    return config


@cache
def _tokenizer_json(family: Family, vocab_size: int) -> str:
    special, other, _, _ = _WORDS[family]
    return tokenizer_json(special, other, vocab_size)


def tokenizer_json(special: tuple[str, ...], other: tuple[str, ...], vocab_size: int) -> str:
    """tokenizer.json of a byte-level BPE whose last ids are these control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special) - len(other),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 2, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in other])
    if tokenizer.get_vocab_size() > vocab_size:
        raise ValueError(f"{special} need more than {vocab_size} ids")
    return str(tokenizer.to_str())
