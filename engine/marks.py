"""The positions of a prompt where later prompts may part from it: a function of the request alone."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from .encoding import Scanner
from .layout import Layout
from .marker_sets import Markers
from .messages import Message
from .rendering import Plain
from .shape import Shape
from .stable import Edge, find_edge, tool_futures, user_futures

MarkKind = Literal["system_end", "user_start", "past_stable", "stable_user", "stable_tool"]

BRANCHES: Final = ("system_end", "stable_user", "stable_tool")
"""Where prompts to come are sure to leave this one: a record ends there, so that all of them share the rows before."""

_EDGES_KEPT = 64


@dataclass(frozen=True, order=True)
class Mark:
    """A position where later prompts may part from this one: `ids[:position]` is what they share with it.

    system_end      end of the system turn and the tools
    user_start      start of a user message's content
    past_stable     what was stable when an earlier user message was the last one
    stable_user     what stays if the next message is a person's
    stable_tool     what stays if the next message is a tool's result
    """

    position: int
    kind: MarkKind


@dataclass(frozen=True)
class Conversation:
    """What was asked: the messages, the same as plain protected data, the tools, and where words begin in the text.

    anchors     message index to the offset of its first word, for messages of the system, of users and of the model
    """

    messages: Sequence[Message]
    plain: list[Plain]
    tools: list[Plain]
    anchors: dict[int, int]

    def indices(self, role: str) -> list[int]:
        """The indices of all messages of a role."""
        return [index for index, message in enumerate(self.messages) if message.role == role]


class EdgeMemory:
    """Edges of earlier user turns, so that a grown conversation isn't rendered again for each of them.

    Messages are frozen and shared from turn to turn: the same objects have the same edge. An edge that the current text
    doesn't hold any more is not given out.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], tuple[tuple[Message, ...], Edge]] = OrderedDict()
        self._settings: tuple[Any, ...] = ()

    def of(self, *settings: Any) -> EdgeMemory:
        """The memory for these settings of the template (JSON values)."""
        self._settings = tuple(json.dumps(one) for one in settings)
        return self

    def get(self, messages: tuple[Message, ...], text: str) -> Edge | None:
        """The edge of a request with these messages, if it is known and `text` begins with what its futures share."""
        known = self._known.get(self._key(messages))
        if known is None or not all(a is b for a, b in zip(known[0], messages, strict=True)):
            return None
        return known[1] if known[1].holds(text) else None

    def put(self, messages: tuple[Message, ...], edge: Edge) -> None:
        """Remember one, forget the oldest."""
        self._known[self._key(messages)] = (messages, edge)
        while len(self._known) > _EDGES_KEPT:
            self._known.popitem(last=False)

    def _key(self, messages: tuple[Message, ...]) -> tuple[Any, ...]:
        return (id(messages[-1]), len(messages), *self._settings)


class MarkFinder:
    """Finds the marks of one rendered request."""

    def __init__(
        self,
        layout: Layout,
        conversation: Conversation,
        shape: Shape,
        markers: Markers,
        separators: Scanner,
        render: Callable[[Sequence[Plain]], str],
        memory: EdgeMemory,
    ) -> None:
        self._layout = layout
        self._conversation = conversation
        self._shape = shape
        self._markers = markers
        self._separators = separators
        self._render = render
        self._memory = memory

    def marks(self, scaffold_start: int, recent_turns: int) -> tuple[Mark, ...]:
        """All marks, sorted. scaffold_start: the offset in the text past which nothing is stable."""
        found = {*self._starts(), *self._past(recent_turns), *self._stable(scaffold_start)}
        return tuple(sorted(mark for mark in found if 0 < mark.position <= self._layout.length))

    def _starts(self) -> Iterator[Mark]:
        layout, anchors = self._layout, self._conversation.anchors
        users = self._conversation.indices("user")
        turns = [(self._content_start(anchors[index]), anchors[index]) for index in users if index in anchors]
        for offset in (offset for starts in turns for offset in starts):
            yield Mark(layout.position(offset), "user_start")
        if turns and users[0] in anchors:
            first, header = turns[0][0], self._shape.user_header
            system = [anchors[index] for index in self._conversation.indices("system") if index in anchors]
            opening = first - len(header)
            apart = layout.text[:first].endswith(header) and opening > max(system, default=0)
            # nothing but the beginning-of-text token before it: no system turn to keep
            if not self._only_control(layout.text[: max(opening, 0)]):
                yield Mark(layout.position(opening if apart else first), "system_end")

    def _content_start(self, words: int) -> int:
        """Where a user message's content begins whose first word is at `words`: before the pictures that lead it."""
        header = self._shape.user_header
        at = self._layout.text.rfind(header, 0, words) if header else -1
        start = at + len(header)
        led = at >= 0 and any(start <= picture < words for picture in self._layout.picture_offsets)
        return start if led else words

    def _only_control(self, text: str) -> bool:
        at = 0
        for start, end in self._separators.find(text):
            if text[at:start].strip():
                return False
            at = end
        return not text[at:].strip()

    def _past(self, recent_turns: int) -> Iterator[Mark]:
        last = len(self._conversation.messages) - 1
        turns = [index for index in self._conversation.indices("user") if index != last]
        for index in turns[-recent_turns:]:
            edge = self._past_edge(index)
            if edge is not None:
                yield Mark(edge.position(self._layout), "past_stable")

    def _past_edge(self, index: int) -> Edge | None:
        """The edge of the request whose last message was the user message `index`."""
        earlier = tuple(self._conversation.messages[: index + 1])
        edge = self._memory.get(earlier, self._layout.text)
        if edge is None:
            futures = user_futures(bool(self._conversation.tools))
            edge = self._edge(self._conversation.plain[: index + 1], futures, self._reply_cap(index))
            if edge is not None:
                self._memory.put(earlier, edge)
        return edge

    def _reply_cap(self, index: int) -> int:
        """Where the reply to a user message began: the request of that time had nothing stable behind it."""
        text, offset = self._layout.text, self._conversation.anchors.get(index)
        if offset is None:
            return len(text)
        found = [text.find(opening, offset) for opening, _ in self._markers.reasoning]
        header = self._shape.after_user.header
        if header and (at := text.find(header, offset)) >= 0:
            found.append(at + len(header))
        return min((at for at in found if at >= 0), default=len(text))

    def _stable(self, cap: int) -> Iterator[Mark]:
        plain, with_tools = self._conversation.plain, bool(self._conversation.tools)
        edge = self._edge(plain, user_futures(with_tools), cap)
        if edge is not None:
            yield Mark(edge.position(self._layout), "stable_user")
        edge = self._edge(plain, tool_futures(), cap) if with_tools else None
        if edge is not None:
            yield Mark(edge.position(self._layout), "stable_tool")

    def _edge(self, messages: list[Plain], futures: list[list[Plain]], cap: int) -> Edge | None:
        return find_edge(
            messages, futures, self._shape.openings, self._render, self._separators, self._layout.text, cap
        )
