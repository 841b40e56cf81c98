"""Steps in the conversation tree: take back, bring back, change, go elsewhere. Nothing that was said is ever lost."""

from __future__ import annotations

from ..engine.conversation_tree import Node
from ..errors import UsageError
from .conversation_map import tree_lines
from .repl_state import Command, ReplState, counted, oldest, shortened
from .terminal_size import size_of

_EXCERPT = 50
_NOTHING_SAID = "nothing is said yet"


class ReplBranches:
    """The commands that go from one branch of a chat to another."""

    def __init__(self, state: ReplState) -> None:
        self._state = state

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {
            "/undo": self._undo,
            "/redo": self._redo,
            "/edit": self._edit,
            "/rewind": self._rewind,
            "/drop": self._drop,
            "/tree": self._tree,
        }

    def _undo(self, _: str) -> None:
        message = self._state.chat.undo()
        if message is None:
            self._state.note("there is nothing to take back")
        else:
            self._state.offer(message)

    def _redo(self, _: str) -> None:
        if not self._state.chat.redo():
            self._state.note("there is nothing to bring back; /tree shows every branch")
            return
        self._state.attachments.clear()
        self._say_where("back")

    def _edit(self, which: str) -> None:
        turns = self._turns(which, "/edit")
        message = self._state.chat.undo(turns)
        assert message is not None
        self._state.offer(message)
        self._state.note("send it changed to go on from here; /redo brings back what was")

    def _rewind(self, which: str) -> None:
        turns = self._turns(which, "/rewind")
        self._state.chat.undo(turns)
        self._say_where(f"{counted(turns, 'message')} taken back, /redo brings them back")

    def _drop(self, which: str) -> None:
        chat = self._state.chat
        turns = len(chat.turns)
        most = "" if turns < 2 else "/drop takes 1; " if turns == 2 else f"/drop takes 1 to {turns - 1}; "
        hint = f"{most}/new begins a new chat"
        asked = _number(which, "/drop", hint)
        if asked >= turns:
            raise UsageError(
                f"you have said {counted(turns, 'message')} here: /drop can leave out {max(0, turns - 1)} at most", hint
            )
        chat.drop_oldest(asked)
        self._state.say_cost(f"goes on without {oldest(asked)}, on a new branch (/redo goes back)")

    def _tree(self, which: str) -> None:
        chat = self._state.chat
        path = chat.tree.grow(chat.messages)
        if not which:
            width = size_of(self._state.streams.stderr).columns
            for line in tree_lines(chat.tree, path, width):
                self._state.note(line)
            if not path:
                self._state.note(_NOTHING_SAID)
            return
        there = len(chat.tree)
        hint = f"/tree alone shows {'them, 1 to' if there > 1 else 'the only one,'} {there}" if there else _NOTHING_SAID
        try:
            message = chat.go_to(_number(which, "/tree", hint))
        except KeyError:
            raise UsageError(f"there is no message {which}", hint) from None
        self._state.attachments.clear()
        if message is not None:
            self._state.offer(message)
        self._say_where("went there, /redo goes back")

    def _turns(self, which: str, command: str) -> int:
        """How many messages back is meant. Raises UsageError if there are fewer."""
        there = len(self._state.chat.turns)
        hint = "/tree shows every branch"
        if there:
            first = "the only one" if there == 1 else f"your last message, {command} {there} your first on this branch"
            hint = f"{command} 1 is {first}; {hint}"
        wanted = _number(which or "1", command, hint)
        if wanted > there:
            raise UsageError(
                f"there {'is' if there == 1 else 'are'} only {counted(there, 'message')} of yours on this branch"
                if there
                else "you have said nothing yet",
                hint,
            )
        return wanted

    def _say_where(self, lead: str) -> None:
        chat = self._state.chat
        path = chat.tree.path(chat.messages)
        self._state.note(f"{lead}: {_place(path)}")


def _place(path: list[Node]) -> str:
    spoken = [node for node in path if node.message.role != "system"]
    if not spoken:
        return "at the beginning"
    return f"behind message {spoken[-1].number}, “{shortened(spoken[-1].message.text, _EXCERPT)}”"


def _number(text: str, command: str, hint: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise UsageError(f"{command} takes a number from 1 on" + (f", not {text}" if text else ""), hint)
    return int(text)
