"""Rebuilt tokenizers against other implementations of the same rules: sentencepiece, and a slow BPE written here."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gguf
import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.engine import gguf_import, gguf_tokenizer
from mlxchat.engine.gguf_tokenizer import Vocabulary, build, merges_from_scores
from mlxchat.errors import ModelUnsupported
from support.gguf_files import SPACE, byte_alphabet, gemma_vocabulary, write_llama

pytestmark = pytest.mark.plain

_WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
_TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "hello",
                " world",
                "the",
                "then",
                "  ",
                "   x",
                "\n",
                "\n\n\n",
                "\t\t",
                "<h1>",
                "1then",
                "don't",
                SPACE,
                "🎉",
            ]
        ),
        st.text(max_size=6),
    ),
    max_size=8,
).map("".join)
_SETTINGS = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def gemma() -> Vocabulary:
    tokens, types, scores = gemma_vocabulary()
    return Vocabulary("llama", "default", tokens, types, scores, (), bos=2, unknown=3, add_bos=True)


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    file = write_llama(tmp_path_factory.mktemp("gguf") / "m.gguf")
    fields = {key: field.contents() for key, field in gguf.GGUFReader(file.path).fields.items()}
    return gguf_import._vocabulary(gguf_import.Source(fields))


def sentencepiece_of(vocabulary: Vocabulary) -> Any:
    """The same vocabulary in sentencepiece's own hands."""
    from sentencepiece import SentencePieceProcessor
    from sentencepiece import sentencepiece_model_pb2 as pb

    model = pb.ModelProto()
    for token, kind, score in zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True):
        piece = model.pieces.add()
        piece.piece = token.replace(" ", SPACE) if kind == 4 else token
        piece.type = 2 if token == "<unk>" else kind
        piece.score = score
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    trainer.pad_id, trainer.eos_id, trainer.bos_id, trainer.unk_id = 0, 1, 2, 3
    normalizer.name, normalizer.escape_whitespaces = "identity", True
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=model.SerializeToString())


def slow_byte_bpe(vocabulary: Vocabulary, text: str) -> list[int]:
    """Digits alone, GPT-2's words, then the lowest-ranked merge again and again."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    rank = {tuple(merge.split(" ")): i for i, merge in enumerate(vocabulary.merges)}
    letters = byte_alphabet()
    found: list[int] = []
    for stretch in regex.findall(r"\p{N}|\P{N}+", text):
        for word in _WORDS.findall(stretch):
            parts = [letters[b] for b in word.encode()]
            while True:
                pairs = [(rank[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in rank]
                if not pairs:
                    break
                _, i = min(pairs)
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            found.extend(ids[part] for part in parts)
    return found


def gemma_differs(text: str, tokenizer: Any, oracle: Any) -> bool:
    return bool(tokenizer.encode(text, add_special_tokens=False).ids != oracle.encode(text))


@_SETTINGS
@given(text=_TEXTS)
def test_gemma_like_encodes_as_sentencepiece(text: str) -> None:
    if any(special in text for special in ("<pad>", "<eos>", "<bos>", "<unk>", "_of_turn>")):
        return
    assert not gemma_differs(text, _GEMMA, _ORACLE), text


@_SETTINGS
@given(text=_TEXTS)
def test_gemma_like_decodes_to_the_same_text(text: str) -> None:
    ids = _GEMMA.encode(text, add_special_tokens=False).ids
    assert _GEMMA.decode(ids, skip_special_tokens=False) == text.replace(SPACE, " ")


_GEMMA = build(gemma())
_ORACLE = sentencepiece_of(gemma())


@pytest.mark.parametrize("fault", ["merge order", "no runs"])
def test_planted_fault_in_the_gemma_rules_shows(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "merge order":
        monkeypatch.setattr(gguf_tokenizer, "merges_from_scores", lambda v: merges_from_scores(v)[::-1])
    else:
        monkeypatch.setattr(gguf_tokenizer, "USER_DEFINED", 99)
    faulty = build(gemma())
    assert any(
        gemma_differs(text, faulty, _ORACLE) for text in ("hello then", "a\n\n\nb", "  x", "1then", "the  world")
    )


@_SETTINGS
@given(text=_TEXTS)
def test_byte_level_encodes_as_the_slow_rules(smol: Vocabulary, text: str) -> None:
    if "<|" in text:
        return
    tokenizer = _cached(smol)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == slow_byte_bpe(smol, text)
    assert tokenizer.decode(ids) == text


def test_planted_fault_digits_together_shows(smol: Vocabulary) -> None:
    from tokenizers import pre_tokenizers

    faulty = build(smol)
    faulty.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = ("hello world", "don't", "then the", "hello2world")
    assert any(faulty.encode(text).ids != slow_byte_bpe(smol, text) for text in texts)


_built: dict[int, Any] = {}


def _cached(vocabulary: Vocabulary) -> Any:
    return _built.setdefault(id(vocabulary), build(vocabulary))


def test_ids_are_the_files_ids(smol: Vocabulary) -> None:
    for vocabulary in (smol, gemma()):
        tokenizer = build(vocabulary)
        found = [tokenizer.id_to_token(i) for i in range(len(vocabulary.tokens))]
        marked = [t.replace(" ", SPACE) for t in vocabulary.tokens]  # runs of spaces are matched in normalized text
        assert [t.replace(" ", SPACE) for t in found] == marked
        assert tokenizer.get_vocab_size() == len(vocabulary.tokens)


def test_control_tokens_are_special_and_runs_are_text() -> None:
    added = build(gemma()).get_added_tokens_decoder()
    special = {token.content for token in added.values() if token.special}
    assert special == {"<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"}
    assert {"\n\n", "  ", "<h1>"} <= {token.content for token in added.values() if not token.special}


def test_bos_is_added_once_and_only_on_request() -> None:
    assert _GEMMA.encode("the").ids[0] == 2
    assert 2 not in _GEMMA.encode("the", add_special_tokens=False).ids


def test_an_unknown_kind_is_named() -> None:
    vocabulary = Vocabulary("bert", "default", ["a"], [1], [0.0], (), 0, 0, False)
    with pytest.raises(ModelUnsupported, match="bert"):
        build(vocabulary)


def test_transformers_loads_the_same_tokenizer(tmp_path: Path) -> None:
    """The folder's files, read the way mlx-lm reads them, encode as the file saved in them does."""
    from mlx_lm.utils import load_tokenizer
    from support.gguf_files import write_gemma3

    for write in (write_llama, write_gemma3):
        folder = tmp_path / write.__name__
        folder.mkdir()
        gguf_import.convert(write(tmp_path / "m.gguf").path, folder, template="x", sampling={})
        wrapper = load_tokenizer(folder)
        from tokenizers import Tokenizer

        plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
        for text in ("hello world", "don't\n\n  x", "12 then 🎉", "<|im_end|><end_of_turn>"):
            assert wrapper.encode(text, add_special_tokens=False) == plain.encode(text, add_special_tokens=False).ids
            assert wrapper.decode(plain.encode(text, add_special_tokens=False).ids) == text
            detokenizer = wrapper.detokenizer
            detokenizer.reset()
            for one in plain.encode(text, add_special_tokens=False).ids:
                detokenizer.add_token(one)
            detokenizer.finalize()
            assert detokenizer.text == text
