"""Logs that hold whole requests: sorted into conversations, each answered by what the next prompt says it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.messages import Message
from ..model import Conversation, ConversationKind, Request, Usage
from ..trees import MessageTree

Object = dict[str, Any]


@dataclass
class LogRow:
    """One logged request.

    messages       the full prompt
    conversation   the log's own name for what it belongs to, None if it has none
    answer         what the log says came back
    """

    messages: tuple[Message, ...]
    line: int
    conversation: str | None = None
    answer: Message | None = None
    tools: tuple[Object, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    time: str | None = None
    max_tokens: int | None = None
    delay_ms: int = 0
    hidden: bool = False
    fallback: Message | None = None


@dataclass
class _Group:
    tree: MessageTree
    rows: list[LogRow] = field(default_factory=list)


class RequestLog:
    """Collects rows, then makes conversations of them.

    Rows without a name belong together if they are equal up to the first user message: an edited or compacted history
    stays with its conversation, a title or a sub-agent's prompt doesn't.
    """

    def __init__(self, default: str) -> None:
        self._default = default
        self._tree = MessageTree()  # for its memory of keys
        self._groups: dict[Any, _Group] = {}
        self._names: dict[Any, str] = {}

    def add(self, row: LogRow) -> None:
        """Take one row, in file order."""
        key = row.conversation if row.conversation is not None else self._opening(row.messages)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(MessageTree())
            self._names[key] = row.conversation or self._name(len(self._groups))
        group.rows.append(row)

    def _name(self, count: int) -> str:
        return self._default if count == 1 else f"{self._default}-{count}"

    def _opening(self, messages: Sequence[Message]) -> tuple[bytes, ...]:
        keys: list[bytes] = []
        for message in messages:
            keys.append(self._tree.key(message))
            if message.role == "user":
                break
        return tuple(keys)

    def conversations(
        self, kinds: dict[str, tuple[ConversationKind, str | None]] | None = None
    ) -> tuple[Conversation, ...]:
        """All of them, in the order of their first rows. `kinds`: kind and parent by name, where not main."""
        out = []
        for key, group in self._groups.items():
            name = self._names[key]
            kind, parent = (kinds or {}).get(name, ("main", None))
            requests = self._requests(group)
            out.append(Conversation(name, requests, kind, parent, entries=tuple(group.tree.entries.values())))
        return tuple(out)

    def _requests(self, group: _Group) -> tuple[Request, ...]:
        requests = []
        for at, row in enumerate(group.rows):
            answer = row.answer or self._answered(row, group.rows[at + 1 :]) or row.fallback
            end = group.tree.add(row.messages, row.line)
            if answer is not None:
                group.tree.add([answer], row.line, end)
            requests.append(_request(row, answer))
        _annotate(group.tree, requests)
        return tuple(requests)

    def _answered(self, row: LogRow, later: Iterable[LogRow]) -> Message | None:
        """The assistant message that the next prompt goes on with after this one."""
        follower = next(iter(later), None)
        count = len(row.messages)
        if follower is None or len(follower.messages) <= count or follower.messages[count].role != "assistant":
            return None
        same = all(
            self._tree.key(a) == self._tree.key(b) for a, b in zip(row.messages, follower.messages[:count], strict=True)
        )
        return follower.messages[count] if same else None


def _request(row: LogRow, answer: Message | None) -> Request:
    return Request(
        messages=row.messages,
        answer=answer,
        line=row.line,
        tools=row.tools,
        usage=row.usage,
        model=row.model,
        time=row.time,
        max_tokens=row.max_tokens,
        delay_ms=row.delay_ms,
        hidden_reasoning=row.hidden,
    )


def _annotate(tree: MessageTree, requests: Sequence[Request]) -> None:
    """Give the answers' entries what the requests say of them."""
    for request in requests:
        if request.answer is None:
            continue
        end = tree.add([*request.messages, request.answer], request.line)
        if end is not None:
            tree.annotate(
                end,
                model=request.model,
                usage=request.usage,
                time=request.time,
                hidden_reasoning=request.hidden_reasoning,
            )


def extends(later: Sequence[Message], earlier: Sequence[Message], tree: MessageTree) -> bool:
    """Whether `later` begins with all of `earlier` and goes on."""
    return len(later) > len(earlier) and all(
        tree.key(a) == tree.key(b) for a, b in zip(earlier, later[: len(earlier)], strict=True)
    )
