"""ATIF trajectories: steps of a system, a user and an agent, with the observations of each step."""

from __future__ import annotations

from ...engine.messages import Message
from ..model import Conversation, ConversationKind, Entry, requests_of
from .base import SYSTEM_PROMPT, TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .content import content_of, result_words, tool_call
from .fields import label, obj, objects, text, time_of, tools_of, usage_of, without

_USED = (
    *("step_id", "timestamp", "source", "message", "reasoning_content", "tool_calls", "observation", "metrics"),
    *("model_name",),
)


def _recognise(head: Head) -> bool:
    return str(head.first.get("schema_version", "")).startswith("ATIF")


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    for record in source.records:
        found += _conversations(source, record.value, record.line)
    missing = [SYSTEM_PROMPT] if not _has_system(found) else []
    if not any(request.tools for conversation in found for request in conversation.requests):
        missing.append(TOOL_SCHEMAS)
    return Parsed(tuple(found), tuple(missing) if found else ())


def _has_system(found: list[Conversation]) -> bool:
    return any(entry.message.role == "system" for conversation in found for entry in conversation.entries)


def _conversations(source: Source, value: Object, line: int, parent: str | None = None) -> list[Conversation]:
    """The trajectory, then those of its sub-agents, to any depth."""
    agent = obj(value.get("agent"))
    entries: list[Entry] = []
    for at, step in enumerate(objects(value.get("steps")), 1):
        made = _step(step, at, text(agent.get("model_name")))
        if not made:
            source.skip(at, f"a step from {str(step.get('source'))[:40]!r}")
        entries += made
    name = label(value.get("session_id")) or label(value.get("trajectory_id")) or source.name
    kind: ConversationKind = "main" if parent is None else "subagent"
    requests = requests_of(tuple(entries), tools_of(agent.get("tool_definitions")))
    out = [Conversation(name, requests, kind, parent, entries=tuple(entries))] if entries else []
    for inner in objects(value.get("subagent_trajectories")):
        out += _conversations(source, inner, line, name)
    return out


def _step(step: Object, at: int, model: str | None) -> list[Entry]:
    """The messages of one step; `at` is its 1-based place. Empty: its source is unknown."""
    source = step.get("source")
    content = content_of(step.get("message"))
    parts = tuple(content.parts)
    time = time_of(step.get("timestamp"))
    if source in ("system", "user"):
        message = Message("system" if source == "system" else "user", parts)
        return [Entry(message, at, time=time, extra=without(step, *_USED)), *_observed(step, at, time, called=False)]
    if source != "agent":
        return []
    calls = tuple(
        tool_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
        for call in objects(step.get("tool_calls"))
    )
    answer = Entry(
        Message("assistant", parts, reasoning=text(step.get("reasoning_content")), tool_calls=calls),
        at,
        time=time,
        model=text(step.get("model_name")) or model,
        usage=usage_of(step.get("metrics")),
        extra=without(step, *_USED),
    )
    return [answer, *_observed(step, at, time, called=bool(calls))]


def _observed(step: Object, at: int, time: str | None, called: bool) -> list[Entry]:
    """What came back: a tool's result where a call was made, else a user's message."""
    out = []
    for result in objects(obj(step.get("observation")).get("results")):
        call = label(result.get("source_call_id"))
        parts = result_words(result.get("content"))
        if not parts and not call:
            continue  # a reference to a sub-agent's trajectory
        out.append(Entry(Message("tool" if called or call else "user", parts, tool_call_id=call), at, time=time))
    return out


FORMAT = Format("atif", "ATIF trajectory", _recognise, _parse)
