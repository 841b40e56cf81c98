"""`--pad recorded`: synthetic text in place of what a file leaves out, as many tokens as were recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ..engine.messages import Message, TextPart
from ..engine.messages import system as system_message
from .jobs import Job
from .prompts import Prompts

Encode = Callable[[str], list[int]]

MARK = "~"
"""Stands beside every count that holds synthetic tokens."""

_WORDS = (" pad", " fill", " x", " a", "\n.")
_RUN = 8  # repetitions in a row that no ordinary text has


class Filler:
    """A word that is one token however often it is repeated, so that any number of tokens can be written."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._word = next((word for word in _WORDS if self._is_steady(word)), _WORDS[0])
        self._id = encode(self._word * 32)[-1]

    def _is_steady(self, word: str) -> bool:
        short, long = self._encode(word * 32), self._encode(word * 64)
        return len(long) - len(short) == 32 and len(set(long[-48:])) == 1

    def text(self, tokens: int) -> str:
        """Text of `tokens` tokens, give or take one where it meets other text."""
        count = max(0, tokens)
        made = len(self._encode(self._word * count)) if count else 0
        return self._word * max(0, count - (made - count))

    def count(self, ids: np.ndarray) -> int:
        """How many of the ids are filler."""
        same = np.concatenate([[0], (ids == self._id).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        runs = edges[1::2] - edges[::2]
        return int(runs[runs >= _RUN].sum())


@dataclass
class _Known:
    """What was filled in for a conversation: its system prompt, and answers by their place, as recorded and padded."""

    system: str = ""
    answers: dict[int, tuple[Message, Message]] = field(default_factory=dict)


class Padding:
    """Fills each conversation's first prompt up to its recorded length, and every answer whose reasoning is hidden.

    What is missing of the first prompt stands in the system message, where system prompt and tools would be, and stays
    the same for the conversation's later requests.
    """

    def __init__(self, filler: Filler, encode: Encode) -> None:
        self.filler = filler
        self._encode = encode
        self._known: dict[str, _Known] = {}

    def apply(self, job: Job, prompt_tokens: int) -> Job:
        """The job with its padding; `prompt_tokens` is how long its prompt is without."""
        known = self._known.get(job.conversation)
        if known is None:
            missing = (job.usage.prompt_tokens or 0) - prompt_tokens
            known = self._known[job.conversation] = _Known(self.filler.text(missing))
        messages = [self._answered(known.answers, index, one) for index, one in enumerate(job.messages)]
        answer = None if job.answer is None else self._reasoned(job, job.answer)
        place = len(messages)
        if answer is not job.answer and answer is not None and job.answer is not None:
            known.answers[place] = (job.answer, answer)
        return replace(job, messages=_with_system(messages, known.system), answer=answer)

    @staticmethod
    def _answered(answers: dict[int, tuple[Message, Message]], index: int, message: Message) -> Message:
        recorded = answers.get(index)
        return recorded[1] if recorded is not None and recorded[0] == message else message

    def _reasoned(self, job: Job, answer: Message) -> Message:
        if not job.hidden_reasoning or answer.reasoning:
            return answer
        tokens = job.usage.reasoning_tokens
        if tokens is None:
            shown = sum(len(self._encode(call.raw or str(call.arguments))) for call in answer.tool_calls)
            tokens = (job.usage.completion_tokens or 0) - len(self._encode(answer.text)) - shown
        return replace(answer, reasoning=self.filler.text(tokens).strip()) if tokens > 0 else answer


def _with_system(messages: list[Message], text: str) -> tuple[Message, ...]:
    if not text:
        return tuple(messages)
    if messages and messages[0].role == "system":
        first = messages[0]
        return (replace(first, content=(*first.content, TextPart(text))), *messages[1:])
    return (system_message(text.strip()), *messages)


def padding_of(prompts: Prompts) -> Padding:
    """Padding in the tokens of these prompts."""
    return Padding(Filler(prompts.encode), prompts.encode)
