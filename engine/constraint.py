"""Keeps an answer within its JSON schema: masks, before each draw, every id that no valid answer has next.

Only the answer is held to it. Reasoning before it is free, wherever its markers lie in the ids.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer

from ..errors import EngineFailed, UsageError
from .answer_schema import grammar_of
from .markers import MarkerParser, Markers

_MOST_SPACES = 2  # tokens of white space between a thought and the answer, which templates write there
_SPACES = ("\n", "\n\n", " ")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ConstraintMaker:
    """Makes the constraints of one model. Reading its vocabulary takes a moment, so one maker is kept.

    vocabulary  llguidance's form of the tokenizer
    tokenizer   mlx-lm's TokenizerWrapper
    end_ids     every id that ends a reply
    """

    vocabulary: Any
    tokenizer: Any
    markers: Markers
    end_ids: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Any, markers: Markers, end_ids: Collection[int], name: str) -> ConstraintMaker:
        """Raises UsageError for a model whose tokenizer llguidance can't read."""
        ends = sorted(end_ids)
        try:
            vocabulary = from_tokenizer(getattr(tokenizer, "_tokenizer", tokenizer), eos_token=ends)
        except Exception as error:  # whatever the library has against a tokenizer
            cause = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"--schema can't be used with {name}: {cause}", "use another model") from error
        return cls(vocabulary, tokenizer, markers, frozenset(end_ids))

    def make(self, schema: str, *, reasoning_open: bool, may_think: bool) -> Constraint:
        """The constraint of one request; `may_think`: whether the reply may begin with a thought of its own accord."""
        openings = [opening for opening, _ in self.markers.reasoning] if may_think else []
        return Constraint(
            LLMatcher(self.vocabulary, grammar_of(schema), log_level=0),
            self.vocabulary,
            MarkerParser(self.markers, reasoning_open),
            self.tokenizer.detokenizer,
            self.end_ids,
            self._single(openings),
            self._single(_SPACES),
        )

    def _single(self, texts: Collection[str]) -> tuple[int, ...]:
        """The ids of those texts that are one token."""
        encoded = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return tuple(ids[0] for ids in encoded if len(ids) == 1)


class Constraint:
    """A logits processor for one reply. It is called before each draw, with all ids fed so far."""

    def __init__(
        self,
        matcher: LLMatcher,
        vocabulary: Any,
        parser: MarkerParser,
        detokenizer: Any,
        end_ids: frozenset[int],
        openings: tuple[int, ...],
        spaces: tuple[int, ...],
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._parser = parser
        self._detokenizer = detokenizer
        self._end_ids = sorted(end_ids)
        self._openings = openings
        self._spaces = spaces
        self._spaces_left = 0
        self._seen: int | None = None
        self._thought = parser.state != "text"
        self._begun = self._ended = False

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """[1, vocabulary] in and out. Waits for the last of `tokens`, which the mask depends on.

        Raises EngineFailed where the grammar can't go on.
        """
        if self._seen is None:
            self._seen = tokens.size  # the prompt
        for token in np.array(tokens[self._seen :]).tolist():
            self._take(token)
        self._seen = tokens.size
        if self._ended or not (self._begun or self._parser.state == "text"):
            return logits
        return mx.where(mx.array(self._allowed(logits.shape[-1])), logits, -mx.inf)

    def _take(self, token: int) -> None:
        """Follow one id that was fed."""
        if self._ended:
            return
        if token in self._end_ids:
            self._ended = True
        elif self._begun:
            self._consume([token])
        else:
            self._detokenizer.add_token(token)
            was_text = self._parser.state == "text"
            said = self._parser.feed(self._detokenizer.last_segment)
            if self._parser.state != "text":
                self._thought, self._spaces_left = True, _MOST_SPACES
            elif was_text:
                if not self._is_space(token):
                    self._consume([token])
            elif answer := "".join(segment.text for segment in said if segment.kind == "text").lstrip():
                self._consume(
                    self._vocabulary.tokenize_str(answer)
                )  # the marker's token holds the answer's first characters

    def _is_space(self, token: int) -> bool:
        """Whether this id stands between the thought and the answer."""
        segment = self._detokenizer.last_segment
        if not self._thought or not (token in self._spaces or (segment and segment.isspace())):
            return False
        self._spaces_left = max(0, self._spaces_left - 1)
        return True

    def _consume(self, ids: list[int]) -> None:
        self._begun = True
        if not self._matcher.consume_tokens(ids):
            raise EngineFailed(
                f"the answer left its schema: {self._matcher.get_error() or 'an id that was not allowed'}",
                "please report it",
            )

    def _allowed(self, width: int) -> Mask:
        """Which of `width` ids may come next: of a vocabulary padded for the kernels, none past the tokenizer's."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.zeros(width, np.bool_)
        bits = np.unpackbits(packed, bitorder="little")[:width]
        allowed[: len(bits)] = bits
        allowed[[i for i in self._end_ids if i < width]] = self._matcher.is_accepting()
        if not self._begun:
            allowed[list(self._openings)] = True
            allowed[list(self._spaces if self._spaces_left else ())] = True
        if not allowed.any():
            raise EngineFailed(
                f"no token can go on with the answer: {self._matcher.get_error() or 'the schema allows none'}",
                "use a simpler schema",
            )
        return allowed
