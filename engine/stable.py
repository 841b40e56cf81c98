"""How much of a prompt every later prompt will share: the template is asked, not known.

The conversation is rendered with placeholder answers (without reasoning) and a placeholder next message. What all of
these share with the prompt, in text and then in tokens, is its stable prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import TemplateError
from .encoding import Scanner
from .layout import Layout, common_text
from .protect import sentinel
from .rendering import Plain
from .shape import CALL, CALLING, RESULT

Render = Callable[[Sequence[Plain]], str]

_NEXT: Plain = {"role": "user", "content": "x"}
_ANSWER = sentinel(0)
_SAID: Plain = {"role": "assistant", "content": _ANSWER}
# two letters, so that one of them differs from the answer that the prompt may already hold
_LETTERS = ("x", "q")


def user_futures(with_tools: bool) -> list[list[Plain]]:
    """What may follow when the next message the model gets is a person's."""
    futures: list[list[Plain]] = [[_SAID, _NEXT]]
    if with_tools:
        futures.append([CALLING, RESULT, {**_SAID, "content": "x"}, _NEXT])
    return futures


def tool_futures() -> list[list[Plain]]:
    """What may follow when the next message is a tool's result."""
    return [[CALLING, RESULT], [{**_SAID, "tool_calls": [CALL]}, RESULT]]


@dataclass(frozen=True)
class Edge:
    """Where the futures of one conversation part from each other.

    offset  characters that all of them and the prompt share
    shared  hash of these characters
    tails   each future's text from `start` on, a control token's end at or before `offset`
    """

    offset: int
    shared: int
    start: int
    tails: tuple[str, ...]

    def holds(self, text: str) -> bool:
        """Whether `text` begins with everything the futures share."""
        return len(text) >= self.offset and hash(text[: self.offset]) == self.shared

    def position(self, layout: Layout) -> int:
        """The number of tokens that a layout whose text `holds` shares with all futures."""
        return min(layout.shared_position(self.offset, tail, self.start) for tail in self.tails)


def find_edge(
    messages: Sequence[Plain],
    futures: Sequence[Sequence[Plain]],
    openings: Sequence[str],
    render: Render,
    separators: Scanner,
    prompt: str,
    cap: int,
) -> Edge | None:
    """The edge of all futures that the template renders, None if it renders none.

    openings    white space that may stand before an answer's first letter
    prompt      the text that is to share it
    cap         the offset in that text past which nothing is stable (the generation's scaffold)
    """
    texts = []
    for future in futures:
        try:
            text = render([*messages, *future])
        except TemplateError:
            continue
        texts += [text.replace(_ANSWER, opening + letter) for opening in openings for letter in _LETTERS]
    if not texts:
        return None
    texts = list(dict.fromkeys(texts))
    offset = min(cap, *(common_text(prompt, text) for text in texts))
    start = max((end for _, end in separators.find(prompt[:offset])), default=0)
    return Edge(offset, hash(prompt[:offset]), start, tuple(text[start:] for text in texts))
