"""Codex rollouts: response items with time stamps; events repeat them, and say what each request cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...engine.messages import Message, system, user
from ..model import Conversation, ConversationKind, Entry, Request, Usage, requests_of
from .base import HIDDEN_REASONING, SYSTEM_PROMPT, TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .content import words_of
from .fields import obj, objects, some_usage, text, usage_of, without
from .response_items import ItemReader

_BOOKKEEPING = ("event_msg", "turn_context", "session_meta", "session_state", "world_state")


def _recognise(head: Head) -> bool:
    return any(value.get("type") == "session_meta" and "payload" in value for value in head.values) or (
        bool(head.values)
        and all(
            "payload" in value and value.get("type") in (*_BOOKKEEPING, "response_item", "compacted")
            for value in head.values
        )
    )


@dataclass
class _Rollout:
    """A rollout being read. `done`: what came before the last compaction."""

    items: ItemReader = field(default_factory=ItemReader)
    done: list[Entry] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    fresh: int = 0
    meta: Object = field(default_factory=dict)
    model: str | None = None
    total: Object = field(default_factory=dict)

    def finish(self) -> None:
        """Make the requests of the history as it stands. Its first `fresh` messages were there before it began."""
        entries = tuple(self.items.entries)
        answered_before = sum(entry.message.role == "assistant" for entry in entries[: self.fresh])
        self.requests += requests_of(entries)[answered_before:]
        self.done += entries[self.fresh :]


def _parse(source: Source) -> Parsed:
    rollout = _Rollout()
    for record in source.records:
        payload = obj(record.value.get("payload"))
        kind = record.value.get("type")
        time = text(record.value.get("timestamp"))
        if kind == "response_item":
            if not rollout.items.take(payload, record.line, time):
                source.skip(record.line, f"an item of type {str(payload.get('type'))[:40]!r}")
        elif kind == "compacted":
            _compact(rollout, payload, record.line)
        elif kind not in _BOOKKEEPING:
            source.skip(record.line, f"a line of type {str(kind)[:40]!r}")
        elif not payload:
            source.skip(record.line, "no payload")
        else:
            _bookkeeping(rollout, str(kind), payload, record.line)
    return _parsed(source, rollout)


def _bookkeeping(rollout: _Rollout, kind: str, payload: Object, line: int) -> None:
    if kind == "session_meta" and not rollout.meta:
        rollout.meta = payload
        base = obj(payload.get("base_instructions")).get("text") or payload.get("base_instructions")
        if words := text(base):
            rollout.items.entries.append(Entry(system(words), line))
    elif kind == "turn_context":
        rollout.model = text(payload.get("model")) or rollout.model
    elif payload.get("type") == "token_count":
        _count(rollout, obj(payload.get("info")))


def _count(rollout: _Rollout, info: Object) -> None:
    """Counts are of the answer before them. The same totals come again without a request in between."""
    total = obj(info.get("total_token_usage"))
    usage = usage_of(info.get("last_token_usage"))
    entries = rollout.items.entries
    at = next((at for at in range(len(entries) - 1, -1, -1) if entries[at].message.role == "assistant"), None)
    if usage is None or at is None or total == rollout.total:
        return
    rollout.total = total
    entries[at] = replace(entries[at], usage=_added(entries[at].usage, usage), model=entries[at].model or rollout.model)


def _added(before: Usage | None, usage: Usage) -> Usage:
    """A second request's counts on the same answer: the prompt is the later one's, what was written adds up."""
    if before is None:
        return usage
    written = (before.completion_tokens or 0) + (usage.completion_tokens or 0)
    thought = (before.reasoning_tokens or 0) + (usage.reasoning_tokens or 0)
    return some_usage(usage.prompt_tokens, usage.cached_tokens, written, thought) or usage


def _compact(rollout: _Rollout, payload: Object, line: int) -> None:
    """The history is replaced: by the list that the line brings, or by what users said and the summary."""
    before = list(rollout.items.entries)
    rollout.finish()
    items = ItemReader()
    replacement = objects(payload.get("replacement_history"))
    if replacement:
        for item in replacement:
            items.take(item, line)
    else:
        items.entries += [replace(e, line=line) for e in before if e.message.role in ("system", "user")]
        if summary := text(payload.get("message")):
            items.entries.append(Entry(user(summary), line))
            rollout.done.append(items.entries[-1])
    items.close()
    first = items.entries[0] if items.entries else None
    if first and first.message.role != "system" and before and before[0].message.role == "system":
        items.entries.insert(0, replace(before[0], line=line))
    rollout.items, rollout.fresh = items, len(items.entries)


def _parsed(source: Source, rollout: _Rollout) -> Parsed:
    rollout.finish()
    if not rollout.done:
        return Parsed(())
    requests = tuple(replace(r, model=r.model or rollout.model) for r in rollout.requests)
    entries = tuple(rollout.done)
    parent, kind = _parent(rollout.meta)
    name = text(rollout.meta.get("id")) or source.name
    extra = without(rollout.meta, "id", "base_instructions", "instructions")
    missing = [TOOL_SCHEMAS]
    if not any(message.role == "system" for message in _openings(requests)):
        missing.insert(0, SYSTEM_PROMPT)
    if any(entry.hidden_reasoning for entry in entries):
        missing.append(HIDDEN_REASONING)
    title = words_of(rollout.meta.get("title")) or None
    return Parsed((Conversation(name, requests, kind, parent, title, entries, extra=extra),), tuple(missing))


def _openings(requests: tuple[Request, ...]) -> list[Message]:
    return [request.messages[0] for request in requests if request.messages]


def _parent(meta: Object) -> tuple[str | None, ConversationKind]:
    """The session that started this one as a sub-agent."""
    source = obj(obj(meta.get("source")).get("subagent"))
    parent = text(obj(source.get("thread_spawn")).get("parent_thread_id"))
    return parent, "subagent" if source else "main"


FORMAT = Format("codex", "Codex rollout", _recognise, _parse)
