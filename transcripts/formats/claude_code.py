"""Claude Code sessions: a tree of lines, an API message spread over several of them, side chains beside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model import Conversation, ConversationKind, Entry, Request, requests_of
from .base import HIDDEN_REASONING, SYSTEM_PROMPT, TOOL_SCHEMAS, Format, Head, Parsed, Source
from .claude_lines import Line, call_ids, entries_of, result_ids
from .fields import label, text

_BOOKKEEPING = (
    *("summary", "system", "file-history-snapshot", "queue-operation", "progress", "attachment", "custom-title"),
    *("ai-title", "agent-name", "agent-color", "last-prompt", "permission-mode", "mode", "pr-link", "tag", "result"),
)
"""Line types that are no part of a prompt; any other unknown type is counted as skipped."""


def _recognise(head: Head) -> bool:
    return any(
        "parentUuid" in value or ("sessionId" in value and isinstance(value.get("type"), str)) for value in head.values
    )


@dataclass
class _Group:
    """The lines of the main conversation, or of one side chain."""

    key: tuple[str, str]
    lines: list[Line]


def _parse(source: Source) -> Parsed:
    title: str | None = None
    lines: list[Line] = []
    for record in source.records:
        value = record.value
        kind = value.get("type")
        if kind in ("summary", "custom-title", "ai-title"):
            title = text(value.get("summary")) or text(value.get("customTitle")) or text(value.get("title")) or title
        if kind not in ("user", "assistant") and kind not in _BOOKKEEPING:
            source.skip(record.line, f"a line of type {str(kind)[:40]!r}")
        elif label(value.get("uuid")):
            lines.append(Line(record.line, value))
        elif kind in ("user", "assistant"):
            source.skip(record.line, "a message without a uuid")
    conversations = [_conversation(source, group, title) for group in _groups(lines)]
    found = tuple(conversation for conversation in conversations if conversation.entries)
    hidden = any(entry.hidden_reasoning for conversation in found for entry in conversation.entries)
    return Parsed(found, (SYSTEM_PROMPT, TOOL_SCHEMAS, *((HIDDEN_REASONING,) if hidden else ())))


def _groups(lines: Iterable[Line]) -> list[_Group]:
    """Main lines together; side chains by the agent they name, or by the line they begin with."""
    groups: dict[tuple[str, str], _Group] = {}
    root: dict[str, tuple[str, str]] = {}
    for line in lines:
        side = line.value.get("isSidechain") is True
        key = ("main", "")
        if side:
            agent = label(line.value.get("agentId"))
            key = ("agent", agent) if agent else root.get(line.parent or "", ("side", line.uuid))
            root[line.uuid] = key
        groups.setdefault(key, _Group(key, [])).lines.append(line)
    return list(groups.values())


def _conversation(source: Source, group: _Group, title: str | None) -> Conversation:
    session = next((found for line in group.lines if (found := text(line.value.get("sessionId")))), source.name)
    segments = _segments(source, group.lines)
    entries: list[Entry] = []
    requests: list[Request] = []
    for segment in segments:
        made = entries_of(source, segment, parent=entries[-1].id if entries else None)
        requests += requests_of(tuple(made))
        entries += made
    kind: ConversationKind = "main"
    name, parent = session, None
    if group.key[0] != "main":
        kind, name, parent = "side" if group.key[0] == "side" else "subagent", f"{session}/{group.key[1]}", session
    return Conversation(name, tuple(requests), kind, parent, title if kind == "main" else None, tuple(entries))


def _segments(source: Source, lines: list[Line]) -> list[list[Line]]:
    """The lines that count, from the last leaf back to the root; a compaction begins a new segment.

    Lines of an abandoned branch are counted as skipped. A parent that isn't in the file is taken to be the line before.
    """
    places = {line.uuid: at for at, line in enumerate(lines)}
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].speaks), None)
    segments: list[list[int]] = []
    while last is not None:
        path, boundary = _path(lines, places, last)
        segments.insert(0, path)
        last = _before(lines, places, boundary)
    kept = {at for path in segments for at in path}
    out = [[lines[at] for at in sorted(set(path) | _belonging(lines, path, kept))] for path in segments]
    used = {line.uuid for segment in out for line in segment}
    for line in lines:
        if line.speaks and line.uuid not in used:
            source.skip(line.number, "an abandoned branch")
    return out


def _path(lines: list[Line], places: dict[str, int], last: int) -> tuple[list[int], int]:
    """(places on the way from `last` up to its root, the root's place)."""
    path = [last]
    while not lines[path[-1]].compacts:
        at = path[-1]
        parent = lines[at].parent
        if parent is None:
            break
        step = places.get(parent, at - 1)
        if not 0 <= step < at:
            break
        path.append(step)
    return path[::-1], path[-1]


def _before(lines: list[Line], places: dict[str, int], root: int) -> int | None:
    """The leaf of what a compaction at `root` replaced; None if `root` is no compaction."""
    if not lines[root].compacts:
        return None
    logical = places.get(label(lines[root].value.get("logicalParentUuid")) or "", root - 1)
    return logical if 0 <= logical < root else None


def _belonging(lines: list[Line], path: list[int], kept: set[int]) -> set[int]:
    """Places off the path that are part of it: other lines of its API messages, and the results of their calls.

    Calls made in parallel fork the chain of lines, though nothing was abandoned.
    """
    on_path = set(path)
    messages = {lines[at].message_id for at in path} - {None}
    more = {
        at
        for at, line in enumerate(lines)
        if at not in kept and line.message_id is not None and line.message_id in messages
    }
    calls = {call for at in on_path | more for call in call_ids(lines[at])}
    answered = {call for at in on_path for call in result_ids(lines[at])}
    for at, line in enumerate(lines):
        results = result_ids(line)
        if at not in kept and results and results <= calls - answered:
            more.add(at)
            answered |= results
    return more


FORMAT = Format("claude-code", "Claude Code session", _recognise, _parse)
