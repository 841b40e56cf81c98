"""What a prompt would be and how much of it is there already, without asking the model anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from ..cache.keys import Ids
from .messages import Message
from .options import RequestOptions

if TYPE_CHECKING:
    from .setup import Machinery


@dataclass(frozen=True, eq=False)
class Outlook:
    """A prompt that isn't sent.

    text     what the template wrote
    ids      int32 [tokens]
    cached   how many of them, from the first on, would not be prefilled again
    limit    how many tokens the model's context holds
    """

    text: str
    ids: Ids
    cached: int
    limit: int

    @property
    def tokens(self) -> int:
        """How long the prompt is."""
        return len(self.ids)

    @property
    def new(self) -> int:
        """How many tokens would be prefilled."""
        return self.tokens - self.cached


def look_ahead(
    machinery: Machinery, conversation: str, messages: tuple[Message, ...], options: RequestOptions, day: str | None
) -> Outlook:
    """Render `messages` as the next request of `conversation` would be. Engine thread only. Raises TemplateError."""
    sequence = machinery.loop.sequences.get(conversation)
    today = sequence.date if sequence is not None else day or date.today().isoformat()
    prompt = machinery.renderer.render(messages, thinking=options.thinking, tools=options.tools, date=today)
    live = sequence.live if sequence is not None else None
    cached = machinery.loop.reuse.reach(prompt.elements, live, prompt.pictures)
    limit = min(machinery.model.context_limit, options.max_context or machinery.model.context_limit)
    return Outlook(prompt.text, np.array(prompt.ids, np.int32), cached, limit)


def count_tokens(machinery: Machinery, texts: tuple[str, ...]) -> list[int]:
    """How many tokens each text is by itself. Engine thread only."""
    tokenizer = machinery.model.tokenizer
    return [len(tokenizer.encode(text, add_special_tokens=False)) if text else 0 for text in texts]
