"""Encoding in parts gives the ids of encoding in one go; text encoded plainly gives no control ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlxchat.engine.encoding import Encoder, Scanner
from mlxchat.engine.layout import Layout, Splice, common_text
from mlxchat.engine.protect import Protector
from support.tiny_tokenizer import Family
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

pytestmark = pytest.mark.exact
Loader = Callable[[Family], Any]

_MARKS = ["<s>", "</s>", "<strip>"]
_PIECES = st.lists(
    st.sampled_from([*_MARKS, "hello", " hello", "hello ", "\n", "\n\n", " ", "  ", "é", "😀", "<", "s>"])
)


def _sentencepiece(style: str) -> PreTrainedTokenizerFast:
    """A byte-fallback BPE as SentencePiece models have it, in the three ways they treat the space before a text."""
    pieces = [
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"helo\n",
        "he",
        "ll",
        "hell",
        "hello",
        "▁hello",
        "▁▁",
        "▁he",
    ]
    vocab = {piece: index for index, piece in enumerate(["<unk>", *dict.fromkeys(pieces)])}
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "he"), ("▁", "hello"), ("▁", "▁")]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if style == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<strip>", normalized=False, lstrip=True, rstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocab_id(tokenizer))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def vocab_id(tokenizer: Tokenizer) -> int:
    return int(tokenizer.get_vocab()["<s>"])


_STYLES = {style: _sentencepiece(style) for style in ("prepend", "first", "none")}


@settings(max_examples=200, deadline=None)
@given(style=st.sampled_from(sorted(_STYLES)), pieces=_PIECES)
def test_in_parts_as_in_one_go(style: str, pieces: list[str]) -> None:
    tokenizer, text = _STYLES[style], "".join(pieces)
    encoder = Encoder(tokenizer)
    layout = Layout(encoder, Protector(Scanner([]), encoder.hides_control), text)
    assert layout.ids() == tokenizer.encode(text, add_special_tokens=False)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(["<|im_start|>", "<|im_end|>", "user", "\n", " ", "x", "é", "😀", "<|im"])))
def test_positions_count_the_tokens_before_a_character(tokenizer_of: Loader, pieces: list[str]) -> None:
    tokenizer, text = tokenizer_of("chatml"), "".join(pieces)
    encoder = Encoder(tokenizer)
    layout = Layout(encoder, Protector(Scanner([]), encoder.hides_control), text)
    for offset in range(len(text) + 1):
        position = layout.position(offset)
        assert text[:offset].startswith(
            tokenizer.decode(layout.ids()[:position], skip_special_tokens=False).rstrip("�")
        )
    assert layout.position(len(text)) == len(layout.ids())


@pytest.mark.parametrize("style", sorted(_STYLES))
@pytest.mark.parametrize("text", ["<s>", "hello<s>", "</s> <s>", "<strip>", "<unk>"])
def test_plain_text_gives_no_control_ids(style: str, text: str) -> None:
    encoder = Encoder(_STYLES[style])
    ids = encoder.plain(text)
    assert encoder.control.id_set.isdisjoint(ids)
    assert encoder.decode(ids).strip() == text.strip()
    # no space is made up in the middle of a text
    assert not encoder.decode(ids).startswith(" ") or text.startswith(" ")


def test_a_splice_stands_for_its_text(tokenizer_of: Loader) -> None:
    encoder = Encoder(tokenizer_of("chatml"))
    text = "<|im_start|>assistant\nanswer<|im_end|>\n"
    start, end = text.index("answer"), text.index("<|im_end|>")
    layout = Layout(encoder, Protector(Scanner([]), encoder.hides_control), text, [Splice(start, end, (7, 8))])
    head = encoder.between("<|im_start|>", "assistant\n", "")
    assert layout.ids()[1 : 1 + len(head) + 2] == [*head, 7, 8]
    assert layout.position(start) == 1 + len(head)
    assert layout.position(start + 2) == layout.position(start)
    assert layout.position(end) == layout.position(start) + 2


def test_scanner_takes_the_leftmost_longest() -> None:
    scanner = Scanner(["<a>", "<a>>", "b", "<"])
    assert [(a, b) for a, b in scanner.find("x<a>>b<")] == [(1, 5), (5, 6), (6, 7)]
    assert list(Scanner([]).find("<a>")) == []


@given(st.text(alphabet="ab", max_size=40), st.text(alphabet="ab", max_size=40))
def test_common_text(a: str, b: str) -> None:
    length = common_text(a, b)
    assert a[:length] == b[:length]
    assert length in (len(a), len(b)) or a[length] != b[length]


def test_the_memo_forgets_the_oldest(tokenizer_of: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlxchat.engine import encoding

    monkeypatch.setattr(encoding, "_MEMO_CHARACTERS", 200)
    encoder = Encoder(tokenizer_of("chatml"))
    for number in range(10):
        encoder.between("<|im_start|>", f"text {number}", "")
    assert len(encoder._memo) == 2
