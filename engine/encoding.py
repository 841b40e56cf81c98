"""From text to token ids: control tokens found, ordinary text encoded canonically, forged text encoded plainly."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

Ids = tuple[int, ...]

# added tokens of this shape that aren't special (Gemma has some) are words of web pages, not control
_HTML_TAG = re.compile(r"</?[a-z]+[1-6]?>")
_MEMO_CHARACTERS = 8_000_000


class ControlTokens:
    """The added tokens that structure a prompt, by their text.

    All special tokens are control tokens, and every other added token except runs of white space and plain HTML tags
    (unless `used` names them): those are ordinary words that happen to be added.
    """

    def __init__(self, added: dict[int, Any], used: Iterable[str] = ()) -> None:
        wanted = set(used)
        self.ids: dict[str, int] = {}
        self.separators: dict[str, int] = {}
        for token_id, token in added.items():
            text = str(token.content)
            word = _HTML_TAG.fullmatch(text) is not None and not token.special and text not in wanted
            if word or not text.strip():
                continue
            self.ids[text] = token_id
            # only these split the text for certain, so only at these may text be encoded in parts
            if not token.normalized and not token.single_word:
                self.separators[text] = token_id
        self.id_set = frozenset(self.ids.values())
        self.normalized = Scanner(text for text, token_id in self.ids.items() if added[token_id].normalized)


class Scanner:
    """Finds the leftmost, there longest, of many strings in a text. Built for thousands of strings."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._by_start: dict[str, tuple[tuple[int, frozenset[str]], ...]] = {}
        grouped: dict[str, dict[int, set[str]]] = {}
        for string in strings:
            grouped.setdefault(string[:1], {}).setdefault(len(string), set()).add(string)
        for first, lengths in grouped.items():
            self._by_start[first] = tuple((n, frozenset(lengths[n])) for n in sorted(lengths, reverse=True))
        starts = "".join(re.escape(first) for first in self._by_start)
        self._start = re.compile(f"[{starts}]") if starts else None

    def find(self, text: str, at: int = 0) -> Iterator[tuple[int, int]]:
        """(start, end) of every hit from `at` on, left to right, none overlapping."""
        if self._start is None:
            return
        while (hit := self._start.search(text, at)) is not None:
            at = hit.start()
            end = self._end(text, at)
            if end:
                yield at, end
            at = end or at + 1

    def _end(self, text: str, at: int) -> int:
        for length, strings in self._by_start[text[at]]:
            if text[at : at + length] in strings:
                return at + length
        return 0


class Encoder:
    """A tokenizer, seen as four ways to encode a stretch of a prompt.

    Ordinary text between two control tokens gets the ids it has when the whole prompt is encoded in one call, because
    it is encoded together with both of them. Stretches are remembered, so a grown conversation costs only what is new.
    """

    def __init__(self, tokenizer: TokenizerWrapper, used: Iterable[str] = ()) -> None:
        self._tokenizer = tokenizer
        self.control = ControlTokens(tokenizer.added_tokens_decoder, used)
        self.separators = Scanner(self.control.separators)
        self._memo: OrderedDict[tuple[str, str, str | None], Ids] = OrderedDict()
        self._memo_size = 0
        self._size = len(tokenizer)
        self._newline = self._encode("\n")
        self._backend = getattr(tokenizer, "backend_tokenizer", None)

    def between(self, before: str | None, text: str, after: str) -> Ids:
        """Ids of ordinary text. before: the control token on its left; "" at the start of the prompt; None when the
        text goes on from something encoded apart. after: the control token on its right, "" if none.
        """
        key = (text, after, before)
        known = self._memo.get(key)
        if known is not None:
            self._memo.move_to_end(key)
            return known
        ids = self._between(before, text, after)
        self._memo[key] = ids
        self._memo_size += len(text) + 64
        while self._memo_size > _MEMO_CHARACTERS:
            (old, _, _), _ = self._memo.popitem(last=False)
            self._memo_size -= len(old) + 64
        return ids

    def plain(self, text: str) -> Ids:
        """Ids of text that must not become a control token, whatever it spells."""
        ids = self._without_added(text)
        if not self.control.id_set.isdisjoint(ids):
            ids = tuple(one for character in text for one in self._without_added(character))
        if not self.control.id_set.isdisjoint(ids):
            raise ValueError(f"the tokenizer makes a control token of plain text: {text!r}")
        return ids

    def hides_control(self, text: str) -> bool:
        """Whether normalizing makes a control token of text that doesn't spell one."""
        normalizer = getattr(self._backend, "normalizer", None)
        if normalizer is None:
            return False
        found = self.control.normalized.find(normalizer.normalize_str(text))
        return any(True for _ in found)

    def knows(self, ids: Iterable[int]) -> bool:
        """Whether all of these are ids of the vocabulary (saved ones may be another model's, or made up)."""
        return max(ids, default=0) < self._size

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, control tokens included, nothing cleaned up."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _encode(self, text: str) -> Ids:
        # verbose: no word about texts longer than the model's context, that is told elsewhere
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def _between(self, before: str | None, text: str, after: str) -> Ids:
        if not text:
            return ()
        tail = 1 if after else 0
        if before is None:
            whole = self._encode("\n" + text + after)
            skip = len(self._newline)
            if whole[:skip] != self._newline:
                # the text begins with white space that joins the newline
                whole, skip = self._encode(text + after), 0
        else:
            whole, skip = self._encode(before + text + after), 1 if before else 0
        return whole[skip : len(whole) - tail]

    def _without_added(self, text: str) -> Ids:
        ids = self._pipeline("\n" + text)
        lead = self._pipeline("\n")
        return ids[len(lead) :] if ids[: len(lead)] == lead else self._pipeline(text)

    def _pipeline(self, text: str) -> Ids:
        """Normalizer, pre-tokenizer and model of the tokenizer, without its added tokens."""
        backend = self._backend
        if backend is None:
            return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return tuple(token.id for word in words for token in backend.model.tokenize(word))
