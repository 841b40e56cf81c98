"""mini-swe-agent trajectories: an object with `trajectory_format`, or a bare list of messages."""

from __future__ import annotations

from dataclasses import replace

from ..model import Conversation, Entry, requests_of
from .base import Format, Head, Object, Parsed, Source
from .chat_messages import chat_messages, entry_of
from .fields import obj, objects, text, usage_of

_ROLES = ("system", "user", "assistant", "exit", "tool")


def _recognise(head: Head) -> bool:
    if "trajectory_format" in head.first:
        return True
    bare = head.array and bool(head.values) and all(_is_bare(value) for value in head.values)
    return bare and not any(value.get("tool_calls") or value.get("role") == "tool" for value in head.values)


def _is_bare(value: Object) -> bool:
    return value.get("role") in _ROLES and isinstance(value.get("content"), str) and "timestamp" not in value


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    loose: list[tuple[int, Object]] = []
    for record in source.records:
        if "messages" in record.value:
            listed = list(enumerate(objects(record.value["messages"]), 1))
            found += _conversation(source, listed, len(found))
        else:
            loose.append((record.line, record.value))
    return Parsed((*found, *_conversation(source, loose, len(found))))


def _conversation(source: Source, listed: list[tuple[int, Object]], before: int) -> list[Conversation]:
    entries: list[Entry] = []
    for line, raw in listed:
        found = chat_messages(raw)
        if not found:
            source.skip(line, f"a message with the role {str(raw.get('role'))[:40]!r}")
        response = obj(obj(raw.get("extra")).get("response"))
        for message in found:
            entry = entry_of(message, raw, line)
            usage = entry.usage or usage_of(response.get("usage"))
            entries.append(replace(entry, usage=usage, model=entry.model or text(response.get("model"))))
    name = source.name if not before else f"{source.name}-{before + 1}"
    return [Conversation(name, requests_of(tuple(entries)), entries=tuple(entries))] if entries else []


FORMAT = Format("mini-swe-agent", "mini-swe-agent trajectory", _recognise, _parse)
