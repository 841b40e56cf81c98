"""Items of OpenAI's Responses API, and of Codex, as messages: neighbouring parts of one answer are merged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...engine.messages import Message, TextPart, ToolCall
from ..model import Entry
from .base import Object
from .chat_messages import ROLES
from .content import content_of, result_words, tool_call, words_of
from .fields import array, label, obj, objects, text

_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output")
_PASSED_OVER = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "ghost_snapshot"),
    *("item_reference", "compaction", "compaction_summary"),
)
"""What the server did on its own, or noted: no part of the messages."""


@dataclass
class ItemReader:
    """Takes items in order; `entries` are the messages so far.

    An answer is open until an output or somebody else's message comes.
    """

    entries: list[Entry] = field(default_factory=list)
    _open: bool = False

    def take(self, item: Object, line: int, time: str | None = None) -> bool:
        """Take one item. False: its type is unknown."""
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            return self._message(item, line, time)
        if kind == "reasoning":
            self._extend(line, time, item, reasoning=_reasoning(item))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            self._extend(line, time, item, calls=(_call(item),))
        elif kind in _OUTPUTS:
            self._add(Message("tool", _output(item.get("output")), tool_call_id=label(item.get("call_id"))), line, time)
        else:
            return kind in _PASSED_OVER
        return True

    def close(self) -> None:
        """The next item begins another answer."""
        self._open = False

    def _message(self, item: Object, line: int, time: str | None) -> bool:
        role = ROLES.get(str(item.get("role")))
        content = content_of(item.get("content"))
        if role == "assistant":
            self._extend(line, time, item, parts=tuple(content.parts))
        elif role is not None:
            extra = {"role": "developer"} if item.get("role") == "developer" else {}
            self._add(Message(role, tuple(content.parts)), line, time, extra)
        return role is not None

    def _add(self, message: Message, line: int, time: str | None, extra: Object | None = None) -> None:
        self._open = False
        self.entries.append(Entry(message, line, time=time, extra=extra or {}))

    def _extend(
        self,
        line: int,
        time: str | None,
        item: Object,
        parts: tuple[Any, ...] = (),
        calls: tuple[ToolCall, ...] = (),
        reasoning: tuple[str | None, str | None, bool] = (None, None, False),
    ) -> None:
        if not self._open:
            self.entries.append(Entry(Message("assistant"), line, time=time, model=text(item.get("model"))))
            self._open = True
        entry = self.entries[-1]
        words, summary, hidden = reasoning
        message = replace(
            entry.message,
            content=(*entry.message.content, *parts),
            tool_calls=(*entry.message.tool_calls, *calls),
            reasoning="\n".join(w for w in (entry.message.reasoning, words) if w) or None,
        )
        extra = dict(entry.extra)
        if summary:
            extra["reasoning_summary"] = "\n".join(w for w in (extra.get("reasoning_summary"), summary) if w)
        self.entries[-1] = replace(
            entry, message=message, extra=extra, hidden_reasoning=entry.hidden_reasoning or hidden
        )


def _reasoning(item: Object) -> tuple[str | None, str | None, bool]:
    """(the reasoning, its summary, whether only the summary or less is there)."""
    words = words_of(item.get("content")) or None
    summary = words_of(item.get("summary")) or None
    return words, summary, words is None


def _call(item: Object) -> ToolCall:
    call_id = label(item.get("call_id")) or item.get("id")
    if item.get("type") == "local_shell_call":
        return tool_call(call_id, "local_shell", obj(item.get("action")))
    return tool_call(call_id, item.get("name"), item.get("arguments", item.get("input")))


def _output(value: Any) -> tuple[Any, ...]:
    inner = obj(value)
    if isinstance(inner.get("content"), str):
        return (TextPart(inner["content"]),) if inner["content"] else ()
    return result_words(value)


def items_of(value: Any) -> list[Object]:
    """The items of a request's input or output: a list, or words alone."""
    if isinstance(value, str) and value:
        return [{"type": "message", "role": "user", "content": value}]
    return objects(array(value))
