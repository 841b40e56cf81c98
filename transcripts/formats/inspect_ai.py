"""Inspect AI logs: samples whose model events are the exact requests; attachments stand apart."""

from __future__ import annotations

from typing import Any

from ...engine.messages import Message
from ..model import Conversation, ConversationKind, Entry, Usage, requests_of
from .base import Format, Head, Object, Parsed, Source
from .chat_messages import chat_messages, entry_of
from .fields import array, label, obj, objects, some_usage, text, time_of, tools_of, whole
from .request_log import LogRow, RequestLog

_ATTACHMENT = "attachment://"
_DEEPEST = 64


def _recognise(head: Head) -> bool:
    return any(
        "eval" in value and ("samples" in value or "sample" in value or "plan" in value) for value in head.values
    )


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    for record in source.records:
        samples = [*objects(record.value.get("samples")), *objects([record.value.get("sample")])]
        for at, sample in enumerate(samples, 1):
            found += _sample(source, sample, at if len(samples) > 1 else record.line)
    return Parsed(tuple(found))


def _sample(source: Source, sample: Object, line: int) -> list[Conversation]:
    """A sample's main conversation, then what other prompts it made (a grader's, a sub-agent's)."""
    attachments = obj(sample.get("attachments"))
    name = f"{label(sample.get('id')) or line}" + (f"/{e}" if (e := whole(sample.get("epoch"))) and e > 1 else "")
    log = RequestLog(name)
    count = 0
    for event in objects(sample.get("events")):
        if event.get("event") == "model":
            row = _row(source, event, attachments, line)
            count += row is not None
            if row is not None:
                log.add(row)
    if not count:
        entries = tuple(_entries(source, objects(resolved(sample.get("messages"), attachments)), line))
        return [Conversation(name, requests_of(entries), entries=entries)] if entries else []
    conversations = log.conversations()
    kinds: dict[str, tuple[ConversationKind, str | None]] = {c.id: ("side", name) for c in conversations[1:]}
    return list(log.conversations(kinds))


def _row(source: Source, event: Object, attachments: Object, line: int) -> LogRow | None:
    given = objects(resolved(event.get("input"), attachments))
    messages = tuple(entry.message for entry in _entries(source, given, line))
    if not messages:
        source.skip(line, "a model event without its input")
        return None
    output = obj(resolved(event.get("output"), attachments))
    choices = objects(output.get("choices"))
    answer = _entries(source, objects([choices[0].get("message")]) if choices else [], line)
    return LogRow(
        messages,
        line,
        answer=_first(answer),
        tools=tools_of(event.get("tools")),
        usage=_usage(obj(output.get("usage"))),
        model=text(event.get("model")) or text(output.get("model")),
        time=time_of(event.get("timestamp")),
        max_tokens=whole(obj(event.get("config")).get("max_tokens")),
        hidden=any(entry.hidden_reasoning for entry in answer),
    )


def _first(entries: list[Entry]) -> Message | None:
    return entries[0].message if entries else None


def _entries(source: Source, listed: list[Object], line: int) -> list[Entry]:
    out: list[Entry] = []
    for raw in listed:
        found = chat_messages(raw)
        if not found:
            source.skip(line, f"a message with the role {str(raw.get('role'))[:40]!r}")
        out += [entry_of(message, raw, line) for message in found]
    return out


def _usage(raw: Object) -> Usage | None:
    """Input tokens are counted without those read from or written to the provider's cache."""
    fresh, read, written = (
        whole(raw.get(name)) for name in ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    )
    prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
    return some_usage(prompt, read, whole(raw.get("output_tokens")), whole(raw.get("reasoning_tokens")))


def resolved(value: Any, attachments: Object, depth: int = 0) -> Any:
    """`value` with every attachment:// reference in it replaced by what it names; one that names nothing stays."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value[len(_ATTACHMENT) :], value)
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        return {name: resolved(inner, attachments, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner, attachments, depth + 1) for inner in array(value)]
    return value


FORMAT = Format("inspect", "Inspect AI log (.json or .eval)", _recognise, _parse)
