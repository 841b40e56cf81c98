"""SWE-agent trajectories: a history, and per step perhaps the exact prompt, where older messages may be rewritten."""

from __future__ import annotations

from ...engine.messages import Message
from ..model import Conversation, Entry, requests_of
from .base import TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .chat_messages import chat_messages, entry_of
from .fields import objects, text, tools_of
from .request_log import LogRow, RequestLog


def _recognise(head: Head) -> bool:
    return "history" in head.first and "trajectory" in head.first


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    for record in source.records:
        history = _messages(source, objects(record.value.get("history")))
        steps = objects(record.value.get("trajectory"))
        tools = tools_of(record.value.get("tools"))
        rows = _rows(source, steps, history, tools)
        if rows is not None:
            log = RequestLog(source.name)
            for row in rows:
                log.add(row)
            found += log.conversations()
        elif history:
            found.append(Conversation(source.name, requests_of(tuple(history), tools), entries=tuple(history)))
    uses_tools = any(entry.message.tool_calls for conversation in found for entry in conversation.entries)
    has_tools = any(request.tools for conversation in found for request in conversation.requests)
    return Parsed(tuple(found), (TOOL_SCHEMAS,) if uses_tools and not has_tools else ())


def _messages(source: Source, listed: list[Object]) -> list[Entry]:
    """Entries by their 1-based place in the list."""
    out: list[Entry] = []
    for at, raw in enumerate(listed, 1):
        found = chat_messages(raw)
        if not found:
            source.skip(at, f"a message with the role {str(raw.get('role'))[:40]!r}")
        out += [entry_of(message, raw, at) for message in found]
    return out


def _rows(source: Source, steps: list[Object], history: list[Entry], tools: tuple[Object, ...]) -> list[LogRow] | None:
    """A request per step, its prompt from the step's query, else the history up to it. None: no step has a query."""
    queries = [_messages(source, objects(step.get("query"))) for step in steps]
    if not any(queries):
        return None
    answers = [at for at, entry in enumerate(history) if entry.message.role == "assistant"]
    answers = answers[max(0, len(answers) - len(steps)) :]  # what comes before are demonstrations
    rows = []
    for at, (step, query) in enumerate(zip(steps, queries, strict=True)):
        prompt = query or (history[: answers[at]] if at < len(answers) else history)
        answer = history[answers[at]].message if at < len(answers) else _answer(step)
        rows.append(
            LogRow(
                tuple(entry.message for entry in prompt), at + 1, conversation=source.name, answer=answer, tools=tools
            )
        )
    return rows


def _answer(step: Object) -> Message | None:
    words = text(step.get("response")) or text(step.get("thought"))
    found = chat_messages({"role": "assistant", "content": words, "tool_calls": step.get("tool_calls")})
    message = found[0].message
    return message if message.content or message.tool_calls else None


FORMAT = Format("swe-agent", "SWE-agent trajectory", _recognise, _parse)
