"""The lines of a Claude Code session as messages: parts of one API message merged, tool results told from words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.messages import Message, TextPart
from ..model import Entry, Usage
from .base import Source
from .content import Content, content_of, result_words
from .fields import Object, label, obj, objects, text, usage_of, whole, without

_USED = ("type", "uuid", "parentUuid", "message", "timestamp", "isSidechain", "sessionId", "toolUseResult")


@dataclass(frozen=True)
class Line:
    """One line that has a place in the tree."""

    number: int
    value: Object

    @property
    def uuid(self) -> str:
        """Its name."""
        return label(self.value.get("uuid")) or ""

    @property
    def parent(self) -> str | None:
        """The name of the line before it."""
        return label(self.value.get("parentUuid"))

    @property
    def speaks(self) -> bool:
        """Whether it holds a message."""
        return self.value.get("type") in ("user", "assistant")

    @property
    def compacts(self) -> bool:
        """Whether the history was replaced by a summary here."""
        return self.value.get("type") == "system" and self.value.get("subtype") == "compact_boundary"

    @property
    def message_id(self) -> str | None:
        """The API's name for the answer that it is a part of."""
        return text(obj(self.value.get("message")).get("id")) if self.value.get("type") == "assistant" else None


def call_ids(line: Line) -> set[str]:
    """The calls that an assistant's line makes."""
    if line.value.get("type") != "assistant":
        return set()
    return _ids(line, "tool_use", "id")


def result_ids(line: Line) -> set[str]:
    """The calls that a user's line answers."""
    return _ids(line, "tool_result", "tool_use_id") if line.value.get("type") == "user" else set()


def _ids(line: Line, kind: str, name: str) -> set[str]:
    blocks = objects(obj(line.value.get("message")).get("content"))
    return {found for block in blocks if block.get("type") == kind and (found := label(block.get(name)))}


def entries_of(source: Source, lines: Sequence[Line], parent: str | None) -> list[Entry]:
    """The messages of `lines`, chained to `parent`."""
    entries: list[Entry] = []
    place: dict[str, int] = {}
    for line in lines:
        if line.message_id in place:
            at = place[line.message_id or ""]
            entries[at] = _merged(entries[at], _answer(line))
        elif line.value.get("type") == "assistant":
            _add_answer(source, line, entries, place)
        elif line.value.get("type") == "user":
            entries += _said(line)
    out: list[Entry] = []
    for entry in entries:
        out.append(replace(entry, parent_id=out[-1].id if out else parent))
    return out


def _add_answer(source: Source, line: Line, entries: list[Entry], place: dict[str, int]) -> None:
    message = obj(line.value.get("message"))
    if line.value.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
        source.skip(line.number, "an error shown in place of an answer")
        return
    if line.message_id:
        place[line.message_id] = len(entries)
    entries.append(_answer(line))


def _answer(line: Line) -> Entry:
    raw = obj(line.value.get("message"))
    content = content_of(raw.get("content"))
    return Entry(
        Message(
            "assistant",
            tuple(content.parts),
            reasoning="\n".join(content.reasoning) or None,
            tool_calls=tuple(content.calls),
        ),
        line.number,
        id=line.uuid,
        time=text(line.value.get("timestamp")),
        model=text(raw.get("model")),
        usage=_usage(obj(raw.get("usage"))),
        hidden_reasoning=content.hidden,
        extra=without(line.value, *_USED, "requestId"),
    )


def _usage(raw: Object) -> Usage | None:
    """The provider counts what it read from its cache, and what it wrote to it, apart from the rest of the prompt."""
    found = usage_of(raw)
    if found is None or found.prompt_tokens is None:
        return found
    read, written = (whole(raw.get(f"cache_{name}_input_tokens")) for name in ("read", "creation"))
    return replace(found, prompt_tokens=found.prompt_tokens + (read or 0) + (written or 0), cached_tokens=read)


def _merged(entry: Entry, more: Entry) -> Entry:
    """Two lines of one API message; the later line's counts are the final ones."""
    a, b = entry.message, more.message
    message = Message(
        "assistant",
        (*a.content, *b.content),
        reasoning="\n".join(words for words in (a.reasoning, b.reasoning) if words) or None,
        tool_calls=(*a.tool_calls, *b.tool_calls),
    )
    usage = more.usage or entry.usage
    return replace(
        entry, message=message, usage=usage, hidden_reasoning=entry.hidden_reasoning or more.hidden_reasoning
    )


def _said(line: Line) -> list[Entry]:
    """A user's line: tool results first, then the words beside them."""
    content = content_of(obj(line.value.get("message")).get("content"))
    extra = without(line.value, *_USED)
    results = [_result(part) for part in content.results]
    messages = [*results, *_words(content)]
    agent = label(obj(line.value.get("toolUseResult")).get("agentId"))
    if agent:
        extra["agentId"] = agent
    return [
        Entry(
            message,
            line.number,
            id=line.uuid if at == 0 else f"{line.uuid}#{at}",
            time=text(line.value.get("timestamp")),
            extra={**extra, **flags},
        )
        for at, (message, flags) in enumerate(messages)
    ]


def _words(content: Content) -> list[tuple[Message, Object]]:
    if not content.parts and content.results:
        return []
    return [(Message("user", tuple(content.parts) or (TextPart(""),)[:0]), {})]


def _result(part: Object) -> tuple[Message, Object]:
    message = Message("tool", result_words(part.get("content")), tool_call_id=label(part.get("tool_use_id")))
    return message, {"is_error": True} if part.get("is_error") is True else {}
