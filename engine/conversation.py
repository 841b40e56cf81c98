"""A conversation as steps in its tree: take back, come back, go elsewhere. The engine side of it is Chat's."""

from __future__ import annotations

from collections.abc import Sequence

from .conversation_tree import ConversationTree
from .messages import Message
from .messages import system as system_message
from .recorder import Recorder


class Conversation:
    """The messages so far, which are one branch of `tree`.

    history     messages that were said before, without the system message; the recorder knows them
    recorder    is told of every step
    """

    def __init__(
        self, system: str | None, history: Sequence[Message], recorder: Recorder, tree: ConversationTree | None
    ) -> None:
        self._system = system
        self._recorder = recorder
        self.messages: list[Message] = []
        self.tree = ConversationTree()
        self._left: list[list[Message]] = []
        self._start_over(tree if tree is not None else ConversationTree())
        self.messages += history
        self.tree.grow(self.messages)

    def _start_over(self, tree: ConversationTree) -> None:
        """Nothing is said; what was is no longer within reach."""
        self.tree, self._left = tree, []
        self.messages = [] if self._system is None else [system_message(self._system)]

    def _answered(self, message: Message) -> None:
        """An answer is kept."""
        self.messages.append(message)
        self._left.clear()
        self.tree.grow(self.messages)

    @property
    def turns(self) -> list[int]:
        """Where in `messages` those of a person stand."""
        return [index for index, message in enumerate(self.messages) if message.role == "user"]

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._system

    def undo(self, turns: int = 1) -> Message | None:
        """Take back the last `turns` user messages and all after them; the first of them, None if there are fewer."""
        found = self.turns
        if not 0 < turns <= len(found):
            return None
        message = self.messages[found[-turns]]
        self._leave_for(self.messages[: found[-turns]])
        return message

    def redo(self) -> bool:
        """Go back to where the last undo, or another step in the tree, was made from; whether there was one."""
        if not self._left:
            return False
        self.tree.grow(self.messages)
        self._stand_at(self._left.pop())
        return True

    def go_to(self, number: int) -> Message | None:
        """Go on behind message `number` of the tree; before it if a person wrote it, who gets it back.

        Raises KeyError if there is no such message.
        """
        node = self.tree.node(number)
        if node is None:
            raise KeyError(number)
        asks = node.message.role == "user"
        self._leave_for([one.message for one in self.tree.branch(node.parent if asks else number)])
        return node.message if asks else None

    def drop_oldest(self, turns: int) -> bool:
        """Go on without the first `turns` user messages and their answers, on a new branch; whether there are more."""
        found = self.turns
        if not 0 < turns < len(found):
            return False
        self._leave_for([*self._lead(), *self.messages[found[turns] :]])
        return True

    def set_system(self, text: str | None) -> None:
        """Another system prompt, or none: the conversation goes on below it on a branch of its own."""
        rest = self.messages[len(self._lead()) :]
        self._leave_for([*([] if text is None else [system_message(text)]), *rest])

    def _lead(self) -> list[Message]:
        return self.messages[:1] if self.messages and self.messages[0].role == "system" else []

    def _leave_for(self, messages: list[Message]) -> None:
        """Go on with another branch; redo comes back."""
        self.tree.grow(self.messages)
        self._left.append(list(self.messages))
        self._stand_at(messages)

    def _stand_at(self, messages: list[Message]) -> None:
        self.messages = list(messages)
        self.tree.grow(self.messages)
        lead = self._lead()
        self._system = lead[0].text if lead else None
        self._recorder.moved(self.messages)
