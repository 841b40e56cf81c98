"""ShareGPT and Hermes rows: `conversations` of from and value, tool calls and their results as tags in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...engine.messages import Message, Role, TextPart, ToolCall
from ..model import Conversation, Entry, requests_of
from .base import Format, Head, Object, Parsed, Source
from .content import parts_of, split_think, tool_call
from .fields import from_json, label, obj, objects, text, tools_of

_ROLES: dict[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


def _recognise(head: Head) -> bool:
    return any(_turns(value) for value in head.values)


def _turns(value: Object) -> list[Object]:
    turns = objects(value.get("conversations")) or objects(value.get("conversation"))
    return turns if turns and "from" in turns[0] else []


@dataclass
class _Reader:
    """Turns one row into messages; calls have no ids in this format, results follow them in order."""

    line: int
    entries: list[Entry] = field(default_factory=list)
    waiting: list[ToolCall] = field(default_factory=list)
    calls: int = 0

    def add(self, message: Message) -> None:
        self.entries.append(Entry(message, self.line))

    def turn(self, turn: Object) -> bool:
        """Take one turn. False: who says it is unknown."""
        role = _ROLES.get(str(turn.get("from")).lower())
        value = turn.get("value")
        words = value if isinstance(value, str) else ""
        if role is None:
            return False
        if role == "assistant":
            self._answer(words, plain_call=turn.get("from") == "function_call")
        elif responses := _RESPONSE.findall(words):
            for response in responses:
                self._result(response)
        elif role == "tool":
            self._result(words)
        else:
            self.add(Message(role, parts_of(value)))
        return True

    def _answer(self, words: str, plain_call: bool) -> None:
        reasoning, rest = split_think(words)
        bodies = [rest] if plain_call else _CALL.findall(rest)
        made = [self._call(body) for body in bodies]
        calls = tuple(call for call in made if call is not None)
        if len(calls) == len(bodies) and calls:  # a call that is no JSON stays what it is: text
            rest = "" if plain_call else _CALL.sub("", rest).strip()
        else:
            calls = ()
        self.waiting = list(calls)
        self.add(Message("assistant", (TextPart(rest),) if rest else (), reasoning=reasoning, tool_calls=calls))

    def _call(self, body: str) -> ToolCall | None:
        value = obj(from_json(body))
        if not isinstance(value.get("name"), str):
            return None
        self.calls += 1
        return tool_call(f"call_{self.calls}", value["name"], value.get("arguments", value.get("parameters", {})))

    def _result(self, words: str) -> None:
        call = self.waiting.pop(0) if self.waiting else None
        value = obj(from_json(words))
        call_id = label(value.get("tool_call_id")) or (call.id if call else None)
        self.add(
            Message("tool", (TextPart(words),) if words else (), tool_call_id=call_id, name=call.name if call else None)
        )


def _parse(source: Source) -> Parsed:
    found: list[Conversation] = []
    for record in source.records:
        turns = _turns(record.value)
        if not turns:
            source.skip(record.line, "no conversation")
            continue
        reader = _Reader(record.line)
        if instructions := text(record.value.get("system")):
            reader.add(Message("system", (TextPart(instructions),)))
        for turn in turns:
            if not reader.turn(turn):
                source.skip(record.line, f"a turn from {str(turn.get('from'))[:40]!r}")
        name = label(record.value.get("id")) or f"{source.name}-{len(found) + 1}"
        entries = tuple(reader.entries)
        found.append(Conversation(name, requests_of(entries, tools_of(record.value.get("tools"))), entries=entries))
    return Parsed(tuple(found))


FORMAT = Format("sharegpt", "ShareGPT or Hermes rows", _recognise, _parse)
