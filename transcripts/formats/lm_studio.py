"""LM Studio conversations: messages in versions of which one is selected, answers in one step or several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...engine.messages import Message, Part, TextPart, ToolCall
from ..model import Conversation, Entry, requests_of
from .base import TOOL_SCHEMAS, Format, Head, Object, Parsed, Source
from .chat_messages import ROLES
from .content import content_of, result_words, split_think, tool_call
from .fields import array, label, obj, objects, some_usage, text, time_of, whole

OUTSIDE_IMAGES = "images (files outside the transcript)"


def _recognise(head: Head) -> bool:
    return any(any("versions" in item for item in objects(value.get("messages"))[:3]) for value in head.values)


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    missing: set[str] = set()
    for record in source.records:
        reader = _Reader()
        if prompt := text(record.value.get("systemPrompt")):
            reader.add(Message("system", (TextPart(prompt),)), 1)
        for at, item in enumerate(objects(record.value.get("messages")), 1):
            if not reader.version(_selected(item), at):
                source.skip(at, "a message without a readable version")
        entries = tuple(reader.entries)
        if entries:
            name = source.name if not found else f"{source.name}-{len(found) + 1}"
            title = text(record.value.get("name"))
            found.append(Conversation(name, requests_of(entries), title=title, entries=entries))
        missing |= reader.missing
    return Parsed(tuple(found), tuple(sorted(missing)))


def _selected(item: Object) -> Object:
    versions = array(item.get("versions"))
    at = whole(item.get("currentlySelected")) or 0
    return obj(versions[at]) if at < len(versions) else {}


@dataclass
class _Reader:
    entries: list[Entry] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    def add(self, message: Message, at: int, **about: Any) -> None:
        self.entries.append(Entry(message, at, **about))

    def version(self, version: Object, at: int) -> bool:
        """Take the selected version of message number `at`. False: it can't be read."""
        role = ROLES.get(str(version.get("role")))
        if role is None:
            return False
        if role == "assistant":
            steps = objects(version.get("steps")) if version.get("type") == "multiStep" else [version]
            self._answer(steps, at)
        else:
            self.add(Message(role, self._parts(version.get("content"))), at)
        return True

    def _parts(self, value: Any) -> tuple[Part, ...]:
        content = content_of(value)
        if any(obj(part).get("type") == "file" for part in content.other):
            self.missing.add(OUTSIDE_IMAGES)
        return tuple(content.parts)

    def _answer(self, steps: list[Object], at: int) -> None:
        """An answer's steps: blocks of text, of thought, calls; a result ends the answer, and another follows."""
        open_answer = _Answer()
        for step in steps:
            if step.get("type") not in ("contentBlock", "singleStep", None):
                continue  # status lines, and what LM Studio shows beside the text
            open_answer.count(step)
            thought = obj(step.get("style")).get("type") == "thinking"
            for part in objects(step.get("content")):
                if part.get("type") == "toolCallResult":
                    self._flush(open_answer, at)
                    open_answer = _Answer(model=open_answer.model)
                    self._result(part, at)
                else:
                    open_answer.take(part, thought)
        self._flush(open_answer, at)

    def _result(self, part: Object, at: int) -> None:
        call_id = label(part.get("toolCallRequestId")) or label(part.get("toolCallId"))
        self.add(Message("tool", result_words(part.get("content")), tool_call_id=call_id), at)
        self.missing.add(TOOL_SCHEMAS)

    def _flush(self, answer: _Answer, at: int) -> None:
        message = answer.message()
        if message.content or message.tool_calls or message.reasoning:
            self.add(message, at, model=answer.model, usage=answer.usage, time=answer.time)


@dataclass
class _Answer:
    parts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    model: str | None = None
    usage: Any = None
    time: str | None = None

    def take(self, part: Object, thought: bool) -> None:
        if part.get("type") == "toolCallRequest":
            call_id = label(part.get("toolCallRequestId")) or label(part.get("callId"))
            self.calls.append(tool_call(call_id, part.get("name"), part.get("parameters")))
        elif words := text(part.get("text")):
            (self.thoughts if thought else self.parts).append(words)

    def count(self, step: Object) -> None:
        info = obj(step.get("genInfo"))
        stats = obj(info.get("stats"))
        self.model = text(info.get("identifier")) or text(info.get("indexedModelIdentifier")) or self.model
        self.time = time_of(step.get("timestamp")) or self.time
        self.usage = (
            some_usage(whole(stats.get("promptTokensCount")), None, whole(stats.get("predictedTokensCount")))
            or self.usage
        )

    def message(self) -> Message:
        reasoning, words = "".join(self.thoughts).strip("\n") or None, "".join(self.parts)
        if reasoning is None:
            reasoning, words = split_think(words)
        parts = (TextPart(words),) if words.strip() else ()
        return Message("assistant", parts, reasoning=reasoning, tool_calls=tuple(self.calls))


FORMAT = Format("lm-studio", "LM Studio conversation", _recognise, _parse)
