"""`llm logs --json`: a row per request that holds only what was new; a tool loop is several rows."""

from __future__ import annotations

from typing import Any

from ...engine.messages import ImagePart, Message, Part, TextPart, system, tool_result
from ..model import Conversation, Entry, Request
from .base import Format, Head, Object, Parsed, Record, Source
from .content import tool_call
from .fields import as_words, label, obj, objects, some_usage, text, time_of, tools_of, usage_of, whole


def _recognise(head: Head) -> bool:
    return "conversation_id" in head.first and "prompt_json" in head.first


def _parse(source: Source) -> Parsed:
    groups: dict[str, list[Record]] = {}
    for record in source.records:
        if "prompt" not in record.value and "response" not in record.value:
            source.skip(record.line, "neither a prompt nor a response")
            continue
        groups.setdefault(label(record.value.get("conversation_id")) or f"row {record.line}", []).append(record)
    return Parsed(tuple(_conversation(name, rows) for name, rows in groups.items()))


def _conversation(name: str, rows: list[Record]) -> Conversation:
    entries: list[Entry] = []
    requests: list[Request] = []
    instructions: str | None = None
    for record in sorted(rows, key=lambda row: (label(row.value.get("id")) or "", row.line)):
        row = record.value
        words = "\n".join(
            [*_fragments(row.get("system_fragments")), *([row["system"]] if text(row.get("system")) else [])]
        )
        if words and words != instructions:
            entries.append(Entry(system(words), record.line))
            instructions = words
        entries += [Entry(message, record.line) for message in _asked(row)]
        requests.append(_request(entries, row, record.line))
        answer = requests[-1].answer
        if answer is not None:
            entries.append(
                Entry(
                    answer,
                    record.line,
                    id=label(row.get("id")),
                    time=requests[-1].time,
                    model=requests[-1].model,
                    usage=requests[-1].usage,
                )
            )
    title = text(rows[0].value.get("conversation_name"))
    return Conversation(name, tuple(requests), title=title, entries=tuple(entries))


def _fragments(value: Any) -> list[str]:
    return [words for fragment in objects(value) if (words := text(fragment.get("content")))]


def _asked(row: Object) -> list[Message]:
    """What went to the model with this row: results of the calls before, and words."""
    messages = [
        tool_result(as_words(r.get("output")), label(r.get("tool_call_id")), text(r.get("name")))
        for r in objects(row.get("tool_results"))
    ]
    prompt = text(row.get("prompt"))
    words = "\n".join([*_fragments(row.get("prompt_fragments")), *([prompt] if prompt else [])])
    images = [ImagePart(found) for item in objects(row.get("attachments")) if (found := _attachment(item))]
    parts: tuple[Part, ...] = (*((TextPart(words),) if words else ()), *images)
    if parts or not messages:
        messages.append(Message("user", parts))
    return messages


def _attachment(item: Object) -> str | None:
    """Where an attached image is: a URL, a path, or its own bytes."""
    where = text(item.get("url")) or text(item.get("path"))
    data = text(item.get("content"))
    kind = text(item.get("type")) or "image/png"
    return where or (f"data:{kind};base64,{data}" if data else None)


def _request(entries: list[Entry], row: Object, line: int) -> Request:
    calls = tuple(
        tool_call(call.get("tool_call_id"), call.get("name"), call.get("arguments"))
        for call in objects(row.get("tool_calls"))
    )
    words = text(row.get("response"))
    answer = None
    if words or calls:
        parts = (TextPart(words),) if words else ()
        answer = Message("assistant", parts, reasoning=text(row.get("reasoning")), tool_calls=calls)
    details = usage_of(row.get("token_details"))
    return Request(
        messages=tuple(entry.message for entry in entries),
        answer=answer,
        line=line,
        tools=tools_of(row.get("tools")),
        usage=some_usage(
            whole(row.get("input_tokens")),
            details.cached_tokens if details else None,
            whole(row.get("output_tokens")),
            details.reasoning_tokens if details else None,
        ),
        model=text(row.get("model")),
        time=time_of(row.get("datetime_utc")),
        max_tokens=whole(obj(row.get("options_json")).get("max_tokens")),
    )


FORMAT = Format("llm-logs", "llm logs --json", _recognise, _parse)
