"""Mooncake and Weka traces: lengths and names of prompt blocks, no text; a replay makes up ids that repeat likewise."""

from __future__ import annotations

from typing import Any

from ..model import Conversation, ConversationKind, Request
from .base import Format, Head, Object, Parsed, Source
from .fields import array, label, objects, some_usage, text, time_of, whole

MOONCAKE_BLOCK = 512
WEKA_BLOCK = 64
NO_TEXT = "all text (lengths and block hashes only)"
_DEEPEST = 32


def _recognise(head: Head) -> bool:
    return any("hash_ids" in value for value in head.values) or any(
        "hash_ids" in request for value in head.values for request in objects(value.get("requests"))[:3]
    )


def _parse(source: Source) -> Parsed:
    rows: dict[str, list[Request]] = {}
    found: list[Conversation] = []
    for record in source.records:
        if "requests" in record.value:
            found += _trace(source, record.value, record.line, len(found))
            continue
        request = _request(record.value, record.line, MOONCAKE_BLOCK)
        if request is None:
            source.skip(record.line, "no hash_ids or no length")
        else:
            rows.setdefault(label(record.value.get("session_id")) or source.name, []).append(request)
    found += [Conversation(name, tuple(requests)) for name, requests in rows.items()]
    return Parsed(tuple(found), (NO_TEXT,) if found else ())


def _request(row: Object, line: int, block: int, scope: str = "") -> Request | None:
    """One request by its lengths. `scope` goes before each block's name where names mean something only within it."""
    ids = tuple(f"{scope}{name}" for value in array(row.get("hash_ids")) if (name := label(value)) is not None)
    prompt = next((n for k in ("input_length", "input_tokens", "in") if (n := whole(row.get(k))) is not None), None)
    answer = next((n for k in ("output_length", "output_tokens", "out") if (n := whole(row.get(k))) is not None), None)
    if not ids or prompt is None:
        return None
    return Request(
        messages=(),
        answer=None,
        line=line,
        usage=some_usage(prompt, None, answer),
        model=text(row.get("model")),
        time=_since_start(row),
        max_tokens=answer,
        delay_ms=whole(row.get("delay")) or whole(row.get("delay_ms")) or 0,
        hash_ids=ids,
        block_tokens=whole(row.get("block_size")) or block,
    )


def _since_start(row: Object) -> str | None:
    """When the request came: these traces count from their start (seconds in `t`, milliseconds in `timestamp`)."""
    offset: Any = row.get("t", row.get("timestamp"))
    if whole(offset) is None:
        return None
    return time_of(offset if "t" in row else offset / 1000)


def _trace(
    source: Source, trace: Object, line: int, before: int, parent: str | None = None, scope: str = "", depth: int = 0
) -> list[Conversation]:
    """A Weka trace and, nested in it, those of its sub-agents."""
    name = label(trace.get("id")) or label(trace.get("agent_id")) or f"{source.name}-{before + 1}"
    if parent is None and trace.get("hash_id_scope") == "local":
        scope = f"{name}:"
    block = whole(trace.get("block_size")) or WEKA_BLOCK
    requests: list[Request] = []
    inner: list[Conversation] = []
    for row in objects(trace.get("requests")):
        if "requests" in row and depth < _DEEPEST:
            nested = {"block_size": block, **row}
            inner += _trace(source, nested, line, before + len(inner) + 1, name, scope, depth + 1)
        elif (request := _request(row, line, block, scope)) is not None:
            requests.append(request)
        else:
            source.skip(line, "a request without hash_ids or length")
    kind: ConversationKind = "main" if parent is None else "subagent"
    return [*([Conversation(name, tuple(requests), kind, parent)] if requests else []), *inner]


FORMAT = Format("hash-trace", "Mooncake or Weka trace", _recognise, _parse)
