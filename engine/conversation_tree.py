"""Every message of a conversation on all its branches: what was taken back, tried again or changed stays reachable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .messages import Message


@dataclass(frozen=True)
class Node:
    """One message in its place.

    number   counts from 1 in the order in which messages were said; it never changes
    parent   the number of the message before it; None at the beginning of a conversation
    model    who said it; None for a person's, and where nobody knows
    """

    number: int
    message: Message
    parent: int | None = None
    model: str | None = None


class ConversationTree:
    """Messages by number, and the branches they make. The same message object may stand on several branches.

    model    names the model that answers now: ids that another one sampled mean nothing to it
    """

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self._nodes: list[Node] = []
        self._below: dict[int | None, list[Node]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, number: int) -> Node | None:
        """The message of that number, None if there is none."""
        return self._nodes[number - 1] if 0 < number <= len(self._nodes) else None

    def below(self, number: int | None) -> Sequence[Node]:
        """What follows a message, one per branch, the oldest first; of None: how conversations begin."""
        return self._below.get(number, ())

    def branch(self, number: int | None) -> list[Node]:
        """The messages from the beginning to the one of that number."""
        found = []
        while number is not None:
            found.append(self._nodes[number - 1])
            number = found[-1].parent
        return found[::-1]

    def path(self, messages: Iterable[Message]) -> list[Node]:
        """The nodes of `messages`, from the beginning on as far as they are known."""
        found: list[Node] = []
        for message in messages:
            known = self.below(found[-1].number if found else None)
            node = next((one for one in known if is_same(one.message, message)), None)
            if node is None:
                break
            found.append(node)
        return found

    def add(self, message: Message, parent: int | None, model: str | None = None) -> Node:
        """A new message behind the one of number `parent`."""
        node = Node(len(self._nodes) + 1, message, parent, model)
        self._nodes.append(node)
        self._below.setdefault(parent, []).append(node)
        return node

    def grow(self, messages: Sequence[Message]) -> list[Node]:
        """The nodes of all of `messages`; those that aren't known yet are added. A copy keeps who said it."""
        found = self.path(messages)
        for message in messages[len(found) :]:
            said_by = self.model if message.role == "assistant" else None
            before = next((one for one in self._nodes if one.message is message), None)
            parent = found[-1].number if found else None
            found.append(self.add(message, parent, said_by if before is None else before.model))
        return found

    def for_another(self, model: str | None) -> ConversationTree:
        """The same messages under the same numbers, for another model to go on."""
        other = ConversationTree(model)
        for node in self._nodes:
            other.add(node.message, node.parent, node.model)
        return other

    def trunk(self, messages: Sequence[Message]) -> ConversationTree:
        """A tree of these messages alone, for the same model."""
        alone = ConversationTree(self.model)
        parent: int | None = None
        for node in self.grow(messages):
            parent = alone.add(node.message, parent, node.model).number
        return alone

    def for_model(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` as the model that answers now is given them: without the ids that another one sampled."""
        said_by = {id(node.message): node.model for node in self.path(messages)}
        return tuple(
            replace(one, generated=None)
            if one.generated is not None and said_by.get(id(one), self.model) != self.model
            else one
            for one in messages
        )


def is_same(one: Message, other: Message) -> bool:
    """Whether two messages are one: the same object, or the same system prompt."""
    return one is other or (one.role == "system" == other.role and one == other)
