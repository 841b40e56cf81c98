"""Session traces (STS), mlxchat's own save format: a header, then a message per line; ids make a tree of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from ...engine.messages import ImagePart, Message
from ..model import Conversation, Entry
from ..sts_lines import LINE_FIELDS, MESSAGE_FIELDS, stamp, usage_json
from ..trees import tree_requests
from .base import TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .chat_messages import ROLES, call_of
from .content import content_of
from .fields import label, obj, objects, text, time_of, tools_of, usage_of, without

HEADER_FIELDS = ("type", "id", "name", "tools", "kind", "parent")
_TITLES = ("name", "session_info")
_BOOKKEEPING = ("settings", "head")
_LONGEST_PATH = 1000


def _recognise(head: Head) -> bool:
    return head.first.get("type") == "session" and isinstance(head.first.get("harness"), str)


def _parse(source: Source) -> Parsed:
    header: Object = {}
    entries: list[Entry] = []
    title: str | None = None
    for record in source.records:
        value = record.value
        kind = value.get("type")
        if kind == "session" and not header:
            header = value
        elif kind in _TITLES:
            title = text(value.get("name")) or title
        elif kind in _BOOKKEEPING:
            continue
        elif kind != "message":
            source.skip(record.line, f"a line of type {str(kind)[:40]!r}")
        elif (entry := entry_of(value, record.line)) is None:
            source.skip(record.line, f"a message with the role {str(obj(value.get('message')).get('role'))[:40]!r}")
        else:
            entries.append(_located(entry, source.path.parent))
    return _parsed(source, header, title, entries)


def _parsed(source: Source, header: Object, title: str | None, entries: list[Entry]) -> Parsed:
    if not entries:
        return Parsed(())
    tools = tools_of(header.get("tools"))
    kind = header.get("kind")
    conversation = Conversation(
        label(header.get("id")) or source.name,
        tree_requests(entries, tools),
        kind if kind == "subagent" or kind == "side" else "main",
        label(header.get("parent")),
        title or text(header.get("name")),
        tuple(entries),
        extra=without(header, *HEADER_FIELDS),
    )
    uses_tools = any(entry.message.tool_calls for entry in entries)
    return Parsed((conversation,), (TOOL_SCHEMAS,) if uses_tools and not tools else ())


def entry_of(line: Object, number: int) -> Entry | None:
    """The entry in a message line; None if its role is unknown."""
    raw = obj(line.get("message"))
    role = ROLES.get(str(raw.get("role")))
    if role is None:
        return None
    content = content_of(raw.get("content"))
    message = Message(
        role,
        tuple(content.parts),
        reasoning=text(raw.get("reasoningContent")) or "\n".join(content.reasoning) or None,
        tool_calls=tuple(call_of(call) for call in objects(raw.get("toolCalls"))),
        tool_call_id=label(raw.get("toolCallId")),
        name=label(raw.get("name")),
        interrupted=line.get("interrupted") is True,
    )
    extra = {**without(line, *LINE_FIELDS), **obj(line.get("extra"))}
    more = without(raw, *MESSAGE_FIELDS)
    time = time_of(raw.get("timestamp"))
    if "timestamp" in raw and (time is None or stamp(time) != raw["timestamp"]):
        more["timestamp"] = raw["timestamp"]
    usage = usage_of(line.get("usage")) or usage_of(raw.get("usage"))
    if "usage" in line and (usage is None or usage_json(usage) != line["usage"]):
        extra["usage"] = line["usage"]
    if raw.get("role") != role:
        more["role"] = raw["role"]
    if content.other:
        more["parts"] = content.other
    if more:
        extra["message"] = more
    return Entry(
        message,
        number,
        id=label(line.get("id")),
        parent_id=label(line.get("parentId")),
        time=time or time_of(line.get("timestamp")),
        model=text(raw.get("model")),
        usage=usage,
        hidden_reasoning=line.get("hiddenReasoning") is True,
        extra=extra,
    )


def _located(entry: Entry, folder: Path) -> Entry:
    """The entry with the paths of images that stand beside the file; other sources stay as they are."""
    parts = tuple(
        ImagePart(str(folder / part.source)) if isinstance(part, ImagePart) and _is_beside(part, folder) else part
        for part in entry.message.content
    )
    same = parts == entry.message.content
    return entry if same else replace(entry, message=replace(entry.message, content=parts))


def _is_beside(part: ImagePart, folder: Path) -> bool:
    path = PurePosixPath(part.source)
    if len(part.source) > _LONGEST_PATH or path.is_absolute() or ".." in path.parts or "\0" in part.source:
        return False
    try:
        return (folder / path).is_file()
    except OSError:  # a part of it is longer than a file name may be
        return False


FORMAT = Format("sts", "session traces (STS), mlxchat's own", _recognise, _parse)
