"""The conversation tree as lines: one per message, branches indented, a mark on the one that you are on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..engine.conversation_tree import ConversationTree, Node
from ..engine.messages import ImagePart, Message
from .repl_state import shortened

_SPEAKERS = {"user": "you", "assistant": "model", "system": "system", "tool": "tool"}
_DEEPEST = 8  # branches of branches are indented so far; further in they are told by their numbers
_LEAST_WORDS = 12


def tree_lines(tree: ConversationTree, here: Sequence[Node], width: int) -> Iterator[str]:
    """Every message of `tree`, no line longer than `width` where there is room for words at all.

    The branch that ends with `here` is marked with stars and goes straight down; others stand before it, indented.
    """
    on = {node.number for node in here}
    digits = len(str(len(tree)))
    waiting = _ordered(tree, None, on, 0)
    while waiting:
        node, depth = waiting.pop()
        start = f"{'*' if node.number in on else ' '} {node.number:>{digits}}  {'  ' * min(depth, _DEEPEST)}"
        end = "  ← here" if here and node is here[-1] else ""
        speaker = f"{_SPEAKERS[node.message.role]}: "
        room = max(_LEAST_WORDS, width - len(start) - len(speaker) - len(end))
        yield f"{start}{speaker}{shortened(_words(node.message), room)}{end}"
        waiting += _ordered(tree, node.number, on, depth)


def _ordered(tree: ConversationTree, parent: int | None, on: set[int], depth: int) -> list[tuple[Node, int]]:
    """What follows a message, what is to be shown last first: the branch you are on, else the newest."""
    below = sorted(tree.below(parent), key=lambda node: (node.number in on, node.number), reverse=True)
    return [(node, depth + (at > 0)) for at, node in enumerate(below)]


def _words(message: Message) -> str:
    if message.text.strip():
        return message.text
    if message.tool_calls:
        return ", ".join(f"calls {call.name}" for call in message.tool_calls)
    if any(isinstance(part, ImagePart) for part in message.content):
        return "(a picture)"
    return "(thought only)" if message.reasoning else "(nothing)"
