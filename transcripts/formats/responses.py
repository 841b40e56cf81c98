"""OpenAI Responses: requests by their input items; a log by previous_response_id holds each turn only once."""

from __future__ import annotations

from dataclasses import replace

from ...engine.messages import Message, system
from ..model import Conversation, Entry, requests_of
from .base import HIDDEN_REASONING, Format, Head, Object, Parsed, Record, Source
from .content import words_of
from .fields import from_json, label, obj, objects, text, time_of, tools_of, usage_of, whole
from .request_log import LogRow, RequestLog
from .response_items import ItemReader, items_of

_ITEM_TYPES = ("message", "reasoning", "function_call", "function_call_output", "custom_tool_call")
EARLIER_TURNS = "earlier turns (previous_response_id)"


def _recognise(head: Head) -> bool:
    return any(_is_request(_body(value)) for value in head.values) or (
        bool(head.values) and all(_is_item(value) for value in head.values) and any("type" in v for v in head.values)
    )


def _body(value: Object) -> Object:
    """The request inside a row: the row itself, or what it wraps."""
    if "input" in value:
        return value
    return next((inner for name in ("body", "request") if "input" in (inner := obj(from_json(value.get(name))))), value)


def _is_request(value: Object) -> bool:
    given = value.get("input")
    if isinstance(given, str):
        return any(name in value for name in ("instructions", "output", "previous_response_id", "model", "tools"))
    items = objects(given)
    return bool(items) and _is_item(items[0])


def _is_item(value: Object) -> bool:
    plain = "role" in value and "content" in value and "type" not in value
    return plain or (value.get("type") in _ITEM_TYPES and not isinstance(value.get("message"), dict))


def _parse(source: Source) -> Parsed:
    log = RequestLog(source.name)
    loose = ItemReader()
    known: dict[str, tuple[Message, ...]] = {}
    missing: set[str] = set()
    for record in source.records:
        if "input" in _body(record.value):
            row = _row(source, record, known, missing)
            if row is not None:
                log.add(row)
        elif not loose.take(record.value, record.line):
            source.skip(record.line, f"an item of type {str(record.value.get('type'))[:40]!r}")
    found = log.conversations()
    if loose.entries:
        entries = tuple(loose.entries)
        found = (*found, Conversation(source.name, requests_of(entries), entries=entries))
    if any(request.hidden_reasoning for conversation in found for request in conversation.requests):
        missing.add(HIDDEN_REASONING)
    return Parsed(found, tuple(sorted(missing)))


def _row(source: Source, record: Record, known: dict[str, tuple[Message, ...]], missing: set[str]) -> LogRow | None:
    """One request. `known`: the full histories behind the responses so far, for those that only name the one before."""
    body = _body(record.value)
    response = obj(record.value.get("response")) or record.value
    previous = text(body.get("previous_response_id"))
    before = known.get(previous or "", ())
    if previous and not before:
        missing.add(EARLIER_TURNS)
    said = _read(source, items_of(body.get("input")), record.line)
    opening = (system(words),) if (words := words_of(body.get("instructions"))) else ()
    earlier = before[1:] if opening and before[:1] and before[0].role == "system" else before
    messages = (*opening, *earlier, *(entry.message for entry in said))
    if not messages:
        source.skip(record.line, "no input")
        return None
    answers = _read(source, items_of(response.get("output")), record.line) if "output" in response else []
    answer = next((entry for entry in answers if entry.message.role == "assistant"), None)
    name = label(response.get("id"))
    if name:
        known[name] = (*messages, *(entry.message for entry in answers))
    return _log_row(record, body, response, messages, answer)


def _log_row(
    record: Record, body: Object, response: Object, messages: tuple[Message, ...], answer: Entry | None
) -> LogRow:
    return LogRow(
        messages,
        record.line,
        conversation=label(obj(body.get("conversation")).get("id")) or label(record.value.get("conversation_id")),
        answer=answer.message if answer else None,
        tools=tools_of(body.get("tools")),
        usage=usage_of(response.get("usage")),
        model=text(response.get("model")) or text(body.get("model")),
        time=time_of(response.get("created_at")) or time_of(record.value.get("timestamp")),
        max_tokens=whole(body.get("max_output_tokens")),
        hidden=bool(answer and answer.hidden_reasoning),
    )


def _read(source: Source, items: list[Object], line: int) -> list[Entry]:
    reader = ItemReader()
    for item in items:
        if not reader.take(item, line):
            source.skip(line, f"an item of type {str(item.get('type'))[:40]!r}")
    return [replace(entry, line=line) for entry in reader.entries]


FORMAT = Format("openai-responses", "OpenAI Responses", _recognise, _parse)
