"""gptme logs: a message per line; tools are code blocks, and their results have the role system."""

from __future__ import annotations

from dataclasses import replace

from ..model import Conversation, Entry, Usage, requests_of
from .base import Format, Head, Object, Parsed, Source
from .chat_messages import chat_messages, entry_of
from .fields import obj, some_usage, text, usage_of, whole


def _recognise(head: Head) -> bool:
    return bool(head.values) and all(
        isinstance(value.get("role"), str) and isinstance(value.get("content"), str) and "timestamp" in value
        for value in head.values
    )


def _parse(source: Source) -> Parsed:
    entries: list[Entry] = []
    for record in source.records:
        found = chat_messages(record.value)
        if not found:
            source.skip(record.line, f"a message with the role {str(record.value.get('role'))[:40]!r}")
        for message in found:
            entry = entry_of(message, record.value, record.line)
            about = obj(record.value.get("metadata"))
            entry = replace(entry, model=entry.model or text(about.get("model")), usage=_usage(obj(about.get("usage"))))
            entries.append(_told_apart(entry, begun=any(e.message.role != "system" for e in entries)))
    return Parsed((Conversation(source.name, requests_of(tuple(entries)), entries=tuple(entries)),) if entries else ())


def _told_apart(entry: Entry, begun: bool) -> Entry:
    """A system message in the middle of the talk is a tool's result."""
    if not begun or entry.message.role != "system":
        return entry
    return replace(entry, message=replace(entry.message, role="tool"), extra={**entry.extra, "role": "system"})


def _usage(raw: Object) -> Usage | None:
    """Input tokens hold the cached ones, unless there are fewer of them than those."""
    usage = usage_of(raw)
    read, written = (whole(raw.get(name)) for name in ("cache_read_tokens", "cache_creation_tokens"))
    if usage is None or usage.prompt_tokens is None:
        return usage
    cached = (read or 0) + (written or 0)
    prompt = usage.prompt_tokens if usage.prompt_tokens >= cached else usage.prompt_tokens + cached
    return some_usage(prompt, read, usage.completion_tokens, usage.reasoning_tokens)


FORMAT = Format("gptme", "gptme conversation", _recognise, _parse)
