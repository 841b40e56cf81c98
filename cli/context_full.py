"""What can be done about a message that doesn't fit into the context: nothing is ever cut off by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..errors import MlxchatError
from .repl_state import oldest
from .text_table import aligned

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.outlook import Outlook


def ways_out(chat: Chat, message: Message, options: RequestOptions) -> list[str]:
    """Commands that would make room for `message`, the one that loses least first, and what each costs."""
    try:
        return _ways(chat, message, options)
    except MlxchatError:  # the cause is told already; this is help
        return ["/new  begins a new chat"]


def _ways(chat: Chat, message: Message, options: RequestOptions) -> list[str]:
    whole = chat.outlook(options, [*chat.messages, message])
    reply = options.sampling.max_tokens or 1
    found: list[tuple[str, str]] = []
    if whole.tokens < whole.limit < whole.tokens + reply:
        left = whole.limit - whole.tokens
        found.append((f"/set max_tokens {left}", f"asks for a shorter reply: {left:,} tokens are left"))
    dropped = _least_to_drop(chat, message, options, reply)
    if dropped is not None:
        count, outlook = dropped
        found.append(
            (
                f"/drop {count}",
                f"goes on without {oldest(count)}, on a new branch: "
                f"{outlook.new:,} of {outlook.tokens:,} tokens to prefill again",
            )
        )
    if chat.turns:
        found.append(("/rewind N", "takes your last N messages back"))
        found.append(("/new", "begins a new chat"))
    return list(aligned(found))


def _least_to_drop(chat: Chat, message: Message, options: RequestOptions, reply: int) -> tuple[int, Outlook] | None:
    """How many of the oldest turns have to go for prompt and reply to fit, by halving; None if all is not enough."""
    turns = chat.turns
    lead = [one for one in chat.messages[:1] if one.role == "system"]

    def without(count: int) -> Outlook:
        return chat.outlook(options, [*lead, *chat.messages[turns[count] :], message])

    low, high = 1, len(turns) - 1
    best: tuple[int, Outlook] | None = None
    while low <= high:
        middle = (low + high) // 2
        outlook = without(middle)
        if outlook.tokens + reply <= outlook.limit:
            best, high = (middle, outlook), middle - 1
        else:
            low = middle + 1
    return best
