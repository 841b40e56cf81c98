"""Pi sessions: a tree of entries; a compaction replaces the history that requests after it see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...engine.messages import Message, TextPart, user
from ..model import Conversation, Entry, Request, Usage
from .base import SYSTEM_PROMPT, TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .content import content_of, result_words
from .fields import label, obj, some_usage, text, time_of, whole, without

_BOOKKEEPING = ("model_change", "thinking_level_change", "custom", "label", "session_info", "session", "leaf")
_USED = ("role", "content", "timestamp", "usage", "model", "toolCallId", "toolName")


def _recognise(head: Head) -> bool:
    first = head.first
    return first.get("type") == "session" and "harness" not in first and ("version" in first or "cwd" in first)


@dataclass(frozen=True)
class _Node:
    """One entry of the file: a message, a compaction (`kept`: where the kept history begins), or neither."""

    id: str
    parent: str | None
    entry: Entry | None = None
    summary: Message | None = None
    kept: str | None = None


def _parse(source: Source) -> Parsed:
    header: Object = {}
    title: str | None = None
    nodes: list[_Node] = []
    for record in source.records:
        value = record.value
        if value.get("type") == "session" and not header:
            header = value
        elif value.get("type") == "session_info":
            title = text(value.get("name")) or title
        node = _node(value, record.line, nodes[-1].id if nodes else None)
        if node is None:
            kind = value.get("type") if value.get("type") != "message" else obj(value.get("message")).get("role")
            source.skip(record.line, f"an entry of type {str(kind)[:40]!r}")
        elif value.get("type") != "session":
            nodes.append(node)
    entries = _entries(nodes)
    if not entries:
        return Parsed(())
    name = label(header.get("id")) or source.name
    extra = without(header, "type", "id")
    conversation = Conversation(name, _requests(nodes), title=title, entries=entries, extra=extra)
    return Parsed((conversation,), (SYSTEM_PROMPT, TOOL_SCHEMAS))


def _node(value: Object, line: int, before: str | None) -> _Node | None:
    kind = value.get("type")
    name = label(value.get("id")) or f"line-{line}"
    parent = label(value.get("parentId")) if "parentId" in value else before
    if kind == "message":
        entry = _entry(obj(value.get("message")), value, line, name)
        return None if entry is None else _Node(name, parent, entry if entry.message.role != "system" else None)
    if kind == "compaction":
        return _Node(name, parent, None, user(text(value.get("summary")) or ""), label(value.get("firstKeptEntryId")))
    if kind == "branch_summary" and text(value.get("summary")):
        return _Node(name, parent, Entry(user(str(value["summary"])), line, name, time=time_of(value.get("timestamp"))))
    if kind == "custom_message":
        message = Message("user", tuple(content_of(value.get("content")).parts))
        return _Node(name, parent, Entry(message, line, name, time=time_of(value.get("timestamp"))))
    return _Node(name, parent) if kind in _BOOKKEEPING else None


def _entry(raw: Object, value: Object, line: int, name: str) -> Entry | None:
    """The message of an entry; one with the role system stands for one that is kept out of prompts."""
    content = content_of(raw.get("content"))
    role = raw.get("role")
    parts = tuple(content.parts)
    if role == "assistant":
        reasoning = "\n".join(content.reasoning) or None
        message = Message("assistant", parts, reasoning=reasoning, tool_calls=tuple(content.calls))
    elif role == "toolResult":
        message = Message(
            "tool",
            result_words(raw.get("content")),
            tool_call_id=label(raw.get("toolCallId")),
            name=text(raw.get("toolName")),
        )
    elif role == "bashExecution":
        left_out = raw.get("excludeFromContext") is True
        words = f"$ {text(raw.get('command')) or ''}\n{text(raw.get('output')) or ''}"
        message = Message("system" if left_out else "user", (TextPart(words),))
    elif role in ("user", "custom", "hookMessage"):
        message = Message("user", parts)
    elif role in ("compactionSummary", "branchSummary"):
        message = user(text(raw.get("summary")) or "")
    else:
        return None
    return Entry(
        message,
        line,
        id=name,
        time=time_of(value.get("timestamp")) or time_of(raw.get("timestamp")),
        model=text(raw.get("model")),
        usage=_usage(obj(raw.get("usage"))),
        hidden_reasoning=content.hidden,
        extra=without(raw, *_USED),
    )


def _usage(raw: Object) -> Usage | None:
    """Pi counts cached and uncached prompt tokens apart."""
    fresh, read, written = (whole(raw.get(name)) for name in ("input", "cacheRead", "cacheWrite"))
    prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
    return some_usage(prompt, read, whole(raw.get("output")))


def _entries(nodes: Sequence[_Node]) -> tuple[Entry, ...]:
    """The messages as a tree: nodes without one are passed through."""
    nearest: dict[str, str | None] = {}
    out = []
    for node in nodes:
        parent = nearest.get(node.parent or "")
        nearest[node.id] = parent if node.entry is None else node.id
        if node.entry is not None:
            out.append(_placed(node.entry, parent))
    return tuple(out)


def _placed(entry: Entry, parent: str | None) -> Entry:
    return Entry(**{**vars(entry), "parent_id": parent})


def _requests(nodes: Sequence[_Node]) -> tuple[Request, ...]:
    places = {node.id: at for at, node in enumerate(nodes)}
    requests = []
    for at, node in enumerate(nodes):
        entry = node.entry
        if entry is not None and entry.message.role == "assistant":
            requests.append(Request.of(entry, _context(nodes, places, at)))
    return tuple(requests)


def _context(nodes: Sequence[_Node], places: dict[str, int], at: int) -> tuple[Message, ...]:
    """What the model saw before the node in place `at`."""
    path: list[_Node] = []
    step = places.get(nodes[at].parent or "")
    while step is not None and step < at:
        path.append(nodes[step])
        at, step = step, places.get(nodes[step].parent or "")
    messages: list[Message] = []
    passed: list[_Node] = []
    for node in path[::-1]:
        if node.summary is not None:
            first = next((i for i, old in enumerate(passed) if old.id == node.kept), len(passed))
            messages = [node.summary, *(old.entry.message for old in passed[first:] if old.entry)]
        elif node.entry is not None:
            messages.append(node.entry.message)
        passed.append(node)
    return tuple(messages)


FORMAT = Format("pi", "Pi session", _recognise, _parse)
