"""How much of a prompt every later prompt will share: the template is asked, not known.

The conversation is rendered with placeholder answers (without reasoning) and a placeholder next message. What all of
these share with the prompt, in text and then in tokens, is its stable prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import TemplateError
from .layout import Layout, common_text
from .rendering import Plain
from .shape import CALL, CALLING, RESULT

Render = Callable[[Sequence[Plain]], str]

_NEXT: Plain = {"role": "user", "content": "x"}
# two letters, so that one of them differs from the answer that the prompt may already hold; then white space
_OPENINGS = ("x", "q", " x", "\nx")


def user_futures(with_tools: bool) -> list[list[Plain]]:
    """What may follow when the next message the model gets is a person's."""
    futures: list[list[Plain]] = [[_answer(opening), _NEXT] for opening in _OPENINGS]
    if with_tools:
        futures.append([CALLING, RESULT, _answer("x"), _NEXT])
    return futures


def tool_futures() -> list[list[Plain]]:
    """What may follow when the next message is a tool's result."""
    return [[CALLING, RESULT], *([{**_answer(opening), "tool_calls": [CALL]}, RESULT] for opening in _OPENINGS)]


def stable_position(
    layout: Layout, messages: Sequence[Plain], futures: Sequence[Sequence[Plain]], render: Render, cap: int
) -> int | None:
    """The number of leading tokens of `layout` that no future of `messages` changes; None if no future renders.

    cap: an offset in the text past which nothing is stable, whatever the futures say (the generation's scaffold).
    """
    texts = []
    for future in futures:
        try:
            texts.append(render([*messages, *future]))
        except TemplateError:
            continue
    if not texts:
        return None
    offset = min(cap, *(common_text(layout.text, text) for text in texts))
    return min(layout.shared_position(offset, text) for text in texts)


def _answer(text: str) -> Plain:
    return {"role": "assistant", "content": text}
