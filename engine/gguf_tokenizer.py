"""Rebuild a `tokenizers` tokenizer from the vocabulary that a GGUF file carries.

Two kinds: byte-level BPE with its merges spelled out (`gpt2`), and SentencePiece-style BPE with byte fallback
(`llama`), whose merges follow from the pieces and their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ModelUnsupported

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
_SPACE = "\u2581"


@dataclass(frozen=True)
class Vocabulary:
    """A GGUF vocabulary. `types` are its token types; `scores` or `merges` may be empty, by `kind`.

    pre  the pre-tokenizer's name; add_bos whether plain encoding starts with the BOS token
    """

    kind: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    bos: int
    unknown: int
    add_bos: bool


def build(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer, or ModelUnsupported for a kind that mlxchat has no rules for."""
    builders: dict[tuple[str, str], Callable[[Vocabulary], Tokenizer]] = {
        ("gpt2", "smollm"): _byte_level,
        ("llama", "default"): _sentencepiece,
    }
    builder = builders.get((vocabulary.kind, vocabulary.pre))
    if builder is None:
        raise ModelUnsupported(
            f"the GGUF's tokenizer ({vocabulary.kind}, {vocabulary.pre}) is not one that can be rebuilt",
            "use the model's MLX or safetensors repository instead",
        )
    tokenizer = builder(vocabulary)
    _add_tokens(tokenizer, vocabulary)
    if vocabulary.add_bos:
        _start_with_bos(tokenizer, vocabulary)
    return tokenizer


def _byte_level(vocabulary: Vocabulary) -> Tokenizer:
    """Every digit on its own, then GPT-2's words over bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges)]
    tokenizer = Tokenizer(models.BPE(vocab=_ids(vocabulary), merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    """Spaces become a visible mark, characters without a piece become their bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    model = models.BPE(
        vocab=_ids(vocabulary),
        merges=merges_from_scores(vocabulary),
        unk_token=vocabulary.tokens[vocabulary.unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def merges_from_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges that SentencePiece's scores imply: best piece first, each split of it into two known pieces.

    Only normal pieces are merged into or from; user-defined ones are cut out of the text before any merge.
    """
    normal = {
        token: i
        for i, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind == NORMAL
    }
    merges: list[tuple[str, str]] = []
    for token in sorted(normal, key=lambda t: -vocabulary.scores[normal[t]]):
        splits = ((token[:i], token[i:]) for i in range(1, len(token)))
        known = [(left, right) for left, right in splits if left in normal and right in normal]
        merges.extend(sorted(known, key=lambda pair: (normal[pair[0]], normal[pair[1]])))
    return merges


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {token: i for i, token in enumerate(vocabulary.tokens)}


def _add_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Control tokens are special (left out when decoding); user-defined ones are matched whole but stay text."""
    from tokenizers import AddedToken

    pairs = list(zip(vocabulary.tokens, vocabulary.types, strict=True))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in pairs if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=True) for t, k in pairs if k == USER_DEFINED])


def _start_with_bos(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    from tokenizers import processors

    bos = vocabulary.tokens[vocabulary.bos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocabulary.bos)]
    )
