"""What a coming prompt is sure to begin with: the template is asked, with several ways in which the words may go on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..cache.keys import Ids
from .ahead import AheadRequest, Preview
from .messages import Message, TextPart, user
from .options import RequestOptions
from .prompts import Prompt, PromptRenderer
from .sequence import Sequence

_MORE = ("x", " x", "\nx", ". ", "'s")  # how what is typed may go on


@dataclass(frozen=True)
class Opening:
    """Where a user's own words will begin behind these messages: the same for every word that is typed."""

    messages: tuple[Message, ...]
    options: RequestOptions
    date: str
    position: int

    def is_for(self, request: AheadRequest, sequence: Sequence) -> bool:
        """Whether these are the very messages, under the same settings."""
        same = len(self.messages) == len(request.messages)
        same = same and all(a is b for a, b in zip(self.messages, request.messages, strict=True))
        return same and (self.options, self.date) == (request.options, sequence.date)


class Previewer:
    """Renders beginnings of a next message with one model's template.

    context_limit   a prompt as long as that begins nothing
    whole           whether one call must feed a whole picture
    """

    def __init__(self, renderer: PromptRenderer, context_limit: int, whole: bool) -> None:
        self._renderer = renderer
        self._context_limit = context_limit
        self._whole = whole
        self._opening: Opening | None = None

    def __call__(self, request: AheadRequest, sequence: Sequence) -> Preview | None:
        """What the prompt of a coming user message is sure to begin with, whatever else is typed; None if nothing is.

        Any of several goings-on is rendered behind the words so far; what all of them share is settled.
        """
        options = request.options

        def render(message: Message) -> Prompt:
            return self._renderer.render(
                (*request.messages, message), thinking=options.thinking, tools=options.tools, date=sequence.date
            )

        opening = self._opening
        if request.draft is None or opening is None or not opening.is_for(request, sequence):
            prompts = [render(user(more)) for more in _MORE]
            header = max(prompts[0].positions("user_start"), default=0)
            opening = Opening(request.messages, options, sequence.date, min(header, len(settled(prompts))))
            self._opening = opening
        if request.draft is not None:
            prompts = [render(message) for message in _goings_on(request.draft)]
        ids, opened = settled(prompts), opening.position
        if request.draft is None:
            ids = ids[:opened]
        if not 0 < len(ids) < self._context_limit:
            return None
        opened = min(opened, len(ids))
        pictures = tuple(span for span in prompts[0].pictures if span.start < len(ids))
        if pictures and pictures[-1].end > len(ids):  # its pixels may yet be others
            ids, pictures = ids[: pictures[-1].start], pictures[:-1]
            opened = min(opened, len(ids))
        kinds = {mark.position: mark.kind for mark in reversed(prompts[0].marks) if mark.position <= opened}
        return Preview(ids, opened, dict(sorted(kinds.items())), pictures, self._whole)


def _goings_on(draft: Message) -> list[Message]:
    """A draft up to its last whole word, and several ways to go on: the word being typed may become another yet."""
    part = draft.content[-1] if draft.content else TextPart("")
    if not isinstance(part, TextPart):
        return [draft]
    words = part.text.rstrip()
    if words == part.text:
        words = words[: len(words) - len(words.split()[-1])].rstrip() if words else ""
    space = part.text[len(words) : len(words) + 1]
    texts = [words, *(words + space + more for more in _MORE)]
    return [replace(draft, content=(*draft.content[:-1], TextPart(text))) for text in texts]


def settled(prompts: list[Prompt]) -> Ids:
    """What several renderings begin with."""
    shortest = min(len(prompt.ids) for prompt in prompts)
    stacked = np.stack([prompt.ids[:shortest] for prompt in prompts])
    differs = (stacked != stacked[0]).any(axis=0)
    ids: Ids = stacked[0][: int(differs.argmax()) if differs.any() else shortest]
    return ids
