"""agentperf rows: each a full prompt, with the lengths and pauses of the recorded run."""

from __future__ import annotations

from ...engine.messages import Message
from .base import Format, Head, Object, Parsed, Source
from .chat_messages import ChatReader
from .content import tool_call
from .fields import label, objects, tools_of, whole
from .request_log import LogRow, RequestLog


def _recognise(head: Head) -> bool:
    return "conversation_idx" in head.first and "messages" in head.first


def _parse(source: Source) -> Parsed:
    log = RequestLog(source.name)
    known = ChatReader()
    for record in source.records:
        row = record.value
        messages: list[Message] = []
        for raw in objects(row.get("messages")):
            found = known.messages(raw)
            messages += [item.message for item in found]
            if not found:
                source.skip(record.line, f"a message with the role {str(raw.get('role'))[:40]!r}")
        if not messages:
            source.skip(record.line, "no messages")
            continue
        log.add(
            LogRow(
                tuple(messages),
                record.line,
                conversation=label(row.get("conversation_id")) or label(row.get("task_id")),
                tools=tools_of(row.get("tools")),
                max_tokens=whole(row.get("target_output_tokens")) or whole(row.get("max_output_tokens")),
                delay_ms=whole(row.get("simulated_tool_delay_ms_after")) or 0,
                fallback=_calls_after(row),
            )
        )
    return Parsed(log.conversations())


def _calls_after(row: Object) -> Message | None:
    """The answer as far as the row itself tells it: the calls that were made after it."""
    calls = objects(row.get("recorded_tool_calls_after"))
    made = tuple(tool_call(call.get("tool_call_id"), call.get("tool_name"), call.get("action")) for call in calls)
    return Message("assistant", tool_calls=made) if made else None


FORMAT = Format("agentperf", "agentperf request rows", _recognise, _parse)
