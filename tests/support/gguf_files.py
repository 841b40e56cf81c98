"""Tiny GGUF files, written the way llama.cpp's converter lays real ones out, with the weights they should become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

LAYERS, HIDDEN, FEED, HEADS, KV_HEADS, HEAD_DIM = 6, 32, 48, 4, 2, 8
SPACE = "\u2581"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WORDS = ["hello", "world", "the", "then", "caféx", "don't"]

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class TinyGguf:
    """The file, the weights by mlx-lm's names that it must turn into, and the vocabulary it carries."""

    path: Path
    weights: Weights
    tokens: list[str]


def byte_alphabet() -> list[str]:
    """GPT-2's 256 stand-ins for bytes, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


def merges_for(words: list[str]) -> list[tuple[str, str]]:
    """Left-to-right merges that build each word out of its characters."""
    merges: list[tuple[str, str]] = []
    for word in words:
        for i in range(1, len(word)):
            pair = (word[:i], word[i])
            if pair not in merges:
                merges.append(pair)
    return merges


def random_weights(vocab: int, seed: int = 0, gemma: bool = False) -> Weights:
    """Weights by mlx-lm's names. Every value is exact in float16 and in bfloat16, also with one added."""
    random = np.random.default_rng(seed)

    def grid(*shape: int) -> NDArray[np.float32]:
        return (random.integers(-32, 32, shape) / 128).astype(np.float32)

    width = HEAD_DIM
    weights: Weights = {"model.embed_tokens.weight": grid(vocab, HIDDEN), "model.norm.weight": grid(HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        weights[f"{layer}.self_attn.q_proj.weight"] = grid(HEADS * width, HIDDEN)
        weights[f"{layer}.self_attn.k_proj.weight"] = grid(KV_HEADS * width, HIDDEN)
        weights[f"{layer}.self_attn.v_proj.weight"] = grid(KV_HEADS * width, HIDDEN)
        weights[f"{layer}.self_attn.o_proj.weight"] = grid(HIDDEN, HEADS * width)
        weights[f"{layer}.mlp.gate_proj.weight"] = grid(FEED, HIDDEN)
        weights[f"{layer}.mlp.up_proj.weight"] = grid(FEED, HIDDEN)
        weights[f"{layer}.mlp.down_proj.weight"] = grid(HIDDEN, FEED)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if gemma:
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
            weights[f"{layer}.self_attn.q_norm.weight"] = grid(width)
            weights[f"{layer}.self_attn.k_norm.weight"] = grid(width)
        for norm in norms:
            weights[f"{layer}.{norm}.weight"] = grid(HIDDEN)
    return weights


def _interleave(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """What the converter does to q and k: row r of the first half and of the second half side by side."""
    out = np.empty_like(rows)
    width = rows.shape[0] // heads
    for head in range(heads):
        for r in range(width // 2):
            out[head * width + 2 * r] = rows[head * width + r]
            out[head * width + 2 * r + 1] = rows[head * width + width // 2 + r]
    return out


_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _gguf_name(name: str, gemma: bool) -> str:
    roots = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = name.removesuffix(".weight")
    if stem in roots:
        return f"{roots[stem]}.weight"
    _, _, index, part = stem.split(".", 3)
    if part == "post_attention_layernorm":
        return f"blk.{index}.{'post_attention_norm' if gemma else 'ffn_norm'}.weight"
    return f"blk.{index}.{_NAMES[part]}.weight"


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _common(writer: gguf.GGUFWriter, context: int) -> None:
    writer.add_context_length(context)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)


def write_llama(path: Path, *, seed: int = 0, tied: bool = True) -> TinyGguf:
    """A SmolLM2-like file: byte-level BPE, q and k interleaved, embeddings tied unless told."""
    letters = byte_alphabet()
    merges = merges_for([*("".join(letters[b] for b in w.encode()) for w in WORDS), letters[32] + "world"])
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*specials, *letters, *dict.fromkeys(a + b for a, b in merges)]
    types = [3] * len(specials) + [1] * (len(tokens) - len(specials))
    weights = random_weights(len(tokens), seed)
    if not tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"][::-1].copy()
    writer = gguf.GGUFWriter(path, "llama")
    _common(writer, 512)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    for name, array in weights.items():
        if name.endswith("q_proj.weight"):
            array = _interleave(array, HEADS)
        elif name.endswith("k_proj.weight"):
            array = _interleave(array, KV_HEADS)
        writer.add_tensor(_gguf_name(name, gemma=False), array)
    _write(writer)
    return TinyGguf(path, weights, tokens)


def gemma_vocabulary() -> tuple[list[str], list[int], list[float]]:
    """Tokens, types and scores of a small SentencePiece-style vocabulary with bytes, runs and control tokens."""
    specials = [("<pad>", 3), ("<eos>", 3), ("<bos>", 3), ("<unk>", 3), ("<start_of_turn>", 3), ("<end_of_turn>", 3)]
    runs = [(c * n, 4) for c, most in (("\n", 4), (" ", 5), ("\t", 2)) for n in range(1 if c != " " else 2, most)]
    tags = [("<h1>", 4), ("</h1>", 4)]
    raw = [(f"<0x{b:02X}>", 6) for b in range(256)]
    merges = merges_for([*WORDS, SPACE + "world", SPACE + "the", SPACE + "xx", "1then"])
    built = list(dict.fromkeys(a + b for a, b in merges))
    single = sorted({c for word in [*built, "abcdefghijklmnopqrstuvwxyz0123456789.,!?'<>/"] for c in word} | {SPACE})
    normal = [*built, *(c for c in single if c not in built)]
    pairs = [*specials, *runs, *tags, *raw, *((t, 1) for t in normal)]
    rank = {t: float(-i) for i, t in enumerate(normal)}
    scores = [rank[t] if k == 1 else (0.0 if k == 6 else -1000.0) for t, k in pairs]
    return [t for t, _ in pairs], [k for _, k in pairs], scores


def write_gemma3(path: Path, *, seed: int = 0) -> TinyGguf:
    """A Gemma-3-like file: SentencePiece vocabulary, norms with one added, embeddings tied, a window of 16."""
    tokens, types, scores = gemma_vocabulary()
    weights = random_weights(len(tokens), seed, gemma=True)
    writer = gguf.GGUFWriter(path, "gemma3")
    _common(writer, 1024)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_sliding_window(16)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores(scores)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    for name, array in weights.items():
        writer.add_tensor(_gguf_name(name, gemma=True), array + 1 if "norm" in name else array)
    _write(writer)
    return TinyGguf(path, weights, tokens)
