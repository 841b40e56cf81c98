"""Where reasoning, answer and tool calls begin and end in sampled text, found while it streams.

A marker may be one token or several, split over chunks or merged with its neighbours: only characters count. The
longest tail of the text that could still grow into a marker is held back, and nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from .marker_sets import HARMONY_ENDS, HARMONY_START, Markers, markers_for

__all__ = ["MarkerParser", "Markers", "Segment", "markers_for", "parse"]

Kind = Literal["reasoning", "text", "tool"]
State = Literal["reasoning", "text", "tool", "header"]

_HARMONY_TOOL = re.compile(r"\bto=\s*[\w.-]*functions\.|\bto=\s*\w")


@dataclass(frozen=True)
class Segment:
    """A stretch of one kind. A tool segment comes whole, with its markers; `closed` is False if it was cut off."""

    kind: Kind
    text: str
    closed: bool = True


class MarkerParser:
    """Splits one reply into segments as it streams. One parser for one reply.

    feed(text)      called once for every token fed after the generation prompt (text may be empty while a character
                    is incomplete); returns what became certain
    finish()        the rest; a marker that never completed was ordinary text
    answer_start    index of the first token that carries a character of the answer (or its tool call's marker); the
                    number of tokens while there is none
    answer_offset   the same as an offset into the text fed
    """

    def __init__(self, markers: Markers, reasoning_open: bool = False) -> None:
        self._markers = markers
        self.state: State = "reasoning" if reasoning_open else "header" if markers.harmony else "text"
        self.blocks = int(reasoning_open)
        self.close_offset: int | None = None
        self._close = markers.reasoning[0][1] if markers.reasoning else ""
        self._skip_space = reasoning_open
        self._buffer = ""
        self._offset = 0
        self._held = ""
        self._held_offset = 0
        self._answer: int | None = None
        self._tokens = 0
        self._span_first = 0
        self._ends: list[int] = []
        self._firsts: list[int] = []

    @property
    def in_reasoning(self) -> bool:
        """Whether the next token still belongs to the reasoning."""
        return self.state == "reasoning"

    @property
    def answer_offset(self) -> int:
        """Offset of the answer's first character in all text fed so far."""
        return self._offset + len(self._buffer) if self._answer is None else self._answer

    @property
    def answer_start(self) -> int:
        """Index of the answer's first token among the tokens fed so far."""
        if self._answer is None:
            return self._tokens
        at = bisect_right(self._ends, self._answer)
        return self._firsts[at] if at < len(self._firsts) else self._tokens

    def feed(self, text: str) -> list[Segment]:
        """Take the text of one more token; return the segments that are now certain, in order."""
        self._tokens += 1
        if not text:
            return []
        self._buffer += text
        self._ends.append(self._offset + len(self._buffer))
        self._firsts.append(self._span_first)
        self._span_first = self._tokens
        return self._drain(final=False)

    def finish(self) -> list[Segment]:
        """Return what was held back. The parser is done after it."""
        out = self._drain(final=True)
        if self.state == "tool":
            # a model without a closing marker writes its calls up to the end; gpt-oss ends them with its end token
            endless = self._markers.tool is not None and not self._markers.tool[1]
            out += self._tool_segment("", closed=endless or self._markers.harmony)
        elif self.state == "header" and self._held.strip():
            self._mark_answer(self._held_offset)
            out.append(Segment("text", self._held))
        self._held = ""
        return _merged(out)

    def _edges(self) -> tuple[str, ...]:
        """The markers that end the current state."""
        if self._markers.harmony:
            return ("<|message|>",) if self.state == "header" else HARMONY_ENDS
        tool = self._markers.tool
        if self.state == "tool":
            return (tool[1],) if tool and tool[1] else ()
        opening = (tool[0],) if tool else ()
        if self.state == "reasoning":
            # some models go from an unclosed thought straight into a call
            return (self._close, *opening)
        return (*(pair[0] for pair in self._markers.reasoning), *opening, *self._markers.dropped)

    def _drain(self, final: bool) -> list[Segment]:
        out: list[Segment] = []
        while True:
            start, marker = _first_marker(self._buffer, self._edges(), final)
            self._take(start, out)
            if not marker:
                return _merged(out)
            self._buffer = self._buffer[len(marker) :]
            self._cross(marker, out)
            self._offset += len(marker)

    def _take(self, length: int, out: list[Segment]) -> None:
        """Move `length` characters of the buffer into the current state."""
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        offset = self._offset
        self._offset += length
        if self.state in ("tool", "header"):
            if not self._held:
                self._held_offset = offset
            self._held += text
            return
        if self._skip_space:
            rest = text.lstrip()
            offset += len(text) - len(rest)
            text = rest
            self._skip_space = not text
        if not text:
            return
        if self.state == "text":
            self._mark_answer(offset)
            out.append(Segment("text", text))
        else:
            out.append(Segment("reasoning", text))

    def _cross(self, marker: str, out: list[Segment]) -> None:
        """Change state at a marker, whose first character is at `_offset`."""
        if self._markers.harmony:
            self._cross_harmony(out)
        elif self.state == "tool":
            out += self._tool_segment(marker, closed=True)
            self.state = "text"
        elif self._markers.tool and marker == self._markers.tool[0]:
            self._mark_answer(self._offset)
            self.state, self._held, self._skip_space = "tool", marker, False
        elif self.state == "reasoning":
            self.state, self._skip_space, self.close_offset = "text", True, self._offset
        else:
            closing = dict(self._markers.reasoning).get(marker)
            if closing is not None:
                self._close, self.state, self._skip_space = closing, "reasoning", True
                self.blocks += 1

    def _cross_harmony(self, out: list[Segment]) -> None:
        if self.state != "header":
            if self.state == "tool":
                out += self._tool_segment("", closed=True)
            elif self.state == "reasoning":
                self.close_offset = self._offset
            self.state, self._held, self._held_offset = "header", "", self._offset
            return
        header = self._held
        lead = header.find(HARMONY_START)
        at = self._held_offset + (lead + len(HARMONY_START) if lead >= 0 else 0)
        if _HARMONY_TOOL.search(header):
            self._mark_answer(at)
            self.state, self._held = "tool", header + "<|message|>"
        elif "<|channel|>analysis" in header:
            self.state, self._held = "reasoning", ""
            self.blocks += 1
        else:
            self._mark_answer(at)
            self.state, self._held = "text", ""

    def _tool_segment(self, marker: str, closed: bool) -> list[Segment]:
        text, self._held = self._held + marker, ""
        return [Segment("tool", text, closed)]

    def _mark_answer(self, offset: int) -> None:
        if self._answer is None:
            self._answer = offset


def parse(markers: Markers, text: str, reasoning_open: bool = False) -> tuple[list[Segment], MarkerParser]:
    """Segments of a whole text, and the parser in its final state."""
    parser = MarkerParser(markers, reasoning_open)
    return _merged(parser.feed(text) + parser.finish()), parser


def _merged(segments: list[Segment]) -> list[Segment]:
    """Neighbours of one kind joined, so that chunking leaves no trace."""
    out: list[Segment] = []
    for segment in segments:
        if out and segment.kind == out[-1].kind != "tool":
            out[-1] = Segment(segment.kind, out[-1].text + segment.text)
        else:
            out.append(segment)
    return out


def _first_marker(text: str, markers: tuple[str, ...], final: bool) -> tuple[int, str]:
    """(characters before it, the leftmost and there longest marker), or (characters that are safe to pass on, "")."""
    start, found = len(text), ""
    for marker in markers:
        at = text.find(marker, 0, start + len(marker))
        if at >= 0 and (at < start or (at == start and len(marker) > len(found))):
            start, found = at, marker
    if not final:
        hold = _held_from(text, markers)
        if hold <= start:
            longer = any(len(m) > len(found) and m.startswith(text[hold:]) for m in markers)
            if hold < start or longer:
                return hold, ""
    return start, found


def _held_from(text: str, markers: tuple[str, ...]) -> int:
    """Where the longest tail begins that is a proper beginning of some marker."""
    longest = max((len(marker) for marker in markers), default=1) - 1
    for at in range(max(0, len(text) - longest), len(text)):
        tail = text[at:]
        if any(len(marker) > len(tail) and marker.startswith(tail) for marker in markers):
            return at
    return len(text)
