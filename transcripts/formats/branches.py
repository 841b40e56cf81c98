"""Rows that mlxchat's own OpenAI export wrote: one per branch, put together again into the tree they came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from ...engine.messages import Message
from ..model import Conversation, ConversationKind, Entry, Request, Usage
from ..trees import Paths, tree_requests
from .fields import Object, array, label, obj, text, whole

KEY = "mlxchat"
"""The field of rows and messages that holds what chat completions have no place for. Other readers ignore it."""

_KINDS = ("main", "subagent", "side")


@dataclass
class _Tree:
    about: Object
    tools: tuple[Object, ...]
    line: int
    entries: dict[int, Entry] = field(default_factory=dict)


class BranchRows:
    """Collects the rows of each conversation."""

    def __init__(self) -> None:
        self._trees: dict[str, _Tree] = {}

    def take(self, row: Object, entries: list[Entry], tools: tuple[Object, ...], line: int) -> bool:
        """Add one row. False: it isn't ours."""
        about = obj(row.get(KEY))
        if "conversation" not in about:
            return False
        raw_messages = [obj(raw) for raw in array(row.get("messages"))]
        tree = self._trees.setdefault(label(about["conversation"]) or "", _Tree(about, tools, line))
        for raw, entry in zip(raw_messages, entries, strict=False):
            more = obj(raw.get(KEY))
            tree.entries.setdefault(whole(more.get("at")) or 0, _restored(entry, more))
        return True

    def conversations(self) -> tuple[Conversation, ...]:
        """All of them, in the order of their first rows."""
        return tuple(self._conversation(name, tree) for name, tree in self._trees.items())

    def _conversation(self, name: str, tree: _Tree) -> Conversation:
        entries = tuple(tree.entries[at] for at in sorted(tree.entries))
        kind = tree.about.get("kind")
        return Conversation(
            name,
            (*tree_requests(entries, tree.tools), *_open_ends(entries, tree.tools)),
            cast(ConversationKind, kind) if kind in _KINDS else "main",
            text(tree.about.get("parent")),
            text(tree.about.get("title")),
            entries,
            extra=obj(tree.about.get("extra")),
        )


def _open_ends(entries: tuple[Entry, ...], tools: tuple[Object, ...]) -> list[Request]:
    """A request for each branch that ends before its answer."""
    paths = Paths(entries)
    ends = [(at, paths.to(at)) for at in paths.leaves() if entries[at].message.role in ("user", "tool")]
    return [Request(tuple(entry.message for entry in path), None, path[-1].line, tools) for _, path in ends]


def _restored(entry: Entry, more: Object) -> Entry:
    """The entry as it was before the export."""
    usage = obj(more.get("usage"))
    message: Message = replace(entry.message, interrupted=more.get("interrupted") is True)
    counts = [whole(usage.get(name)) for name in ("prompt", "cached", "completion", "reasoning")]
    extra: dict[str, Any] = obj(more.get("extra"))
    return replace(
        entry,
        message=message,
        line=whole(more.get("line")) or entry.line,
        id=text(more.get("id")),
        parent_id=text(more.get("parentId")),
        time=text(more.get("time")),
        model=text(more.get("model")),
        usage=Usage(*counts) if usage else None,
        hidden_reasoning=more.get("hiddenReasoning") is True,
        extra=extra,
    )
