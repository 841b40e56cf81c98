"""An answer that is already known: its ids as the template writes them, and how far they have been fed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .encoding import Encoder
from .marker_sets import HARMONY_START, Markers
from .messages import Message
from .rendering import Plain

if TYPE_CHECKING:
    from .prompts import Prompt

Feed = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Recorded:
    """What to feed in place of a sampled reply.

    feed    "prefill": calls of up to 256 tokens that end at block edges; "decode": one token at a time
    ids     of an answer that is nothing but ids
    """

    answer: Message
    feed: Feed = "prefill"
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ReplyIds:
    """The ids of an answer past its prompt, the end token left out (only the next prompt shows which one it is).

    mismatched   tokens at the prompt's end that the rendering through the answer does not begin with: a scaffold that
                 history lacks, or more where the template rewrites what stands before the answer
    """

    ids: tuple[int, ...]
    mismatched: int = 0


def answer_end(encoder: Encoder, text: str, ends: Collection[int]) -> int:
    """Where the last message of a rendered conversation ends: before the end token that closes it, if one does."""
    start, end = max(encoder.separators.find(text), default=(len(text), len(text)))
    closes = encoder.control.ids.get(text[start:end]) in ends and not text[end:].strip()
    return start if closes else len(text)


def hidden_reasoning(markers: Markers, prompt: Prompt, answer: Plain, shown: str) -> str:
    """The reasoning of an answer as the model would have written it, where its rendering `shown` leaves it out.

    Empty where it is shown, or where the prompt has closed the reasoning before it began.
    """
    reasoning = str(answer.get("reasoning_content") or "").strip()
    closed = bool(prompt.scaffold_text) and not prompt.reasoning_open
    if not reasoning or reasoning in shown or closed or not markers.has_reasoning:
        return ""
    if markers.harmony:
        return f"<|channel|>analysis<|message|>{reasoning}<|end|>{HARMONY_START}"
    opening = prompt.scaffold_text if prompt.reasoning_open else f"{markers.reasoning[0][0]}\n"
    return opening + reasoning + markers.close_text
