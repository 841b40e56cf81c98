"""Puts the ids that were sampled back where the template renders the message they made.

Text that is decoded and tokenized again may give other ids, and templates write JSON and white space their own way.
Where the rendering says the same as the sampled ids, the ids as fed stand in its place; in any doubt it is left as is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .encoding import Encoder
from .layout import Splice
from .marker_sets import HARMONY_START, Markers
from .markers import MarkerParser, parse
from .messages import Generated, Message
from .protect import Protector, split_at_sentinels
from .rendering import Plain
from .shape import Shape
from .tool_calls import Reply, ToolCallReader, reply_of


@dataclass(frozen=True)
class _Parsed:
    reply: Reply
    state: MarkerParser


class Splicer:
    """Finds the splices of one prompt. All offsets are in the rendered text before stand-ins are turned back."""

    def __init__(
        self, markers: Markers, encoder: Encoder, protector: Protector, shape: Shape, reader: ToolCallReader
    ) -> None:
        self._markers = markers
        self._encoder = encoder
        self._protector = protector
        self._shape = shape
        self._reader = reader

    def splices(self, text: str, messages: Sequence[Message], anchors: dict[int, int]) -> list[Splice]:
        """A splice for every generated message that fits. anchors: message index to offset of its first word."""
        found, low = [], 0
        for index, message in enumerate(messages):
            anchor = anchors.get(index)
            if anchor is None:
                continue
            if message.role == "assistant" and message.generated is not None and index > 0:
                after_tool = messages[index - 1].role == "tool"
                header = (self._shape.after_tool if after_tool else self._shape.after_user).header
                start = self._reply_start(text, low, anchor, header)
                end = None if start is None else self._reply_end(text, start)
                splice = None if start is None or end is None else self._fit(text, start, end, message.generated)
                if splice is not None:
                    found.append(splice)
                    low = max(low, splice.end)
            low = max(low, anchor)
        return found

    def _reply_start(self, text: str, low: int, anchor: int, header: str) -> int | None:
        """Where generation of the message began: behind the header of its turn."""
        if header:
            at = text.rfind(header, low, anchor)
            return None if at < 0 else at + len(header)
        # no header of its own: the model goes on right behind what ends the user's turn or the tool's result
        own = self._markers.strings
        ends = [end for start, end in self._encoder.separators.find(text[:anchor], low) if text[start:end] not in own]
        return ends[-1] if ends else None

    def _reply_end(self, text: str, start: int) -> int | None:
        """The first control token that ends a turn, not one inside it."""
        own = sorted(self._markers.strings, key=len, reverse=True)
        tool = self._markers.tool
        in_tool, skip = False, start
        for at, end in self._encoder.separators.find(text, start):
            if at < skip:
                continue
            token = text[at:end]
            marker = next((one for one in own if text.startswith(one, at)), "")
            if self._markers.harmony and token == "<|end|>" and text.startswith(HARMONY_START, end):
                skip = end + len(HARMONY_START)
            elif self._markers.harmony and token in ("<|channel|>", "<|message|>", "<|constrain|>"):
                continue
            elif marker and not self._markers.harmony:
                in_tool = (in_tool or marker == tool[0]) and marker != tool[1] if tool else False
                skip = at + len(marker)
            elif not in_tool or token == self._shape.turn_end:
                return at
        return None

    def _fit(self, text: str, start: int, end: int, generated: Generated) -> Splice | None:
        if not self._encoder.knows((*generated.scaffold_ids, *generated.ids)):
            return None
        marked = text[start:end]
        region = self._protector.restore(marked)
        have = self._parse(region)
        full = self._parse(generated.scaffold_text + self._decode(generated.ids))
        if have.state.blocks == full.state.blocks and have.reply.same_as(full.reply):
            ids = generated.scaffold_ids + generated.ids
            if full.state.in_reasoning and have.state.close_offset is not None:
                # cut off inside its reasoning: the template's closing words stay
                end -= len(region) - len(region[: have.state.close_offset].rstrip())
            return Splice(start, end, ids) if ids and start < end else None
        answer = generated.ids[generated.answer_start :]
        if have.reply.reasoning.strip() or not answer:
            return None
        said = self._parse(self._decode(answer))
        offset = have.state.answer_offset
        if said.state.blocks or not said.reply.same_as(have.reply) or marked[:offset] != region[:offset]:
            return None
        return Splice(start + offset, end, answer) if start + offset < end else None

    def _parse(self, text: str) -> _Parsed:
        segments, state = parse(self._markers, text)
        return _Parsed(reply_of(segments, self._reader), state)

    def _decode(self, ids: tuple[int, ...]) -> str:
        # an answer cut off inside a character ends in replacement characters
        return _decoded(self._encoder, ids).rstrip("\N{REPLACEMENT CHARACTER}")


@lru_cache(maxsize=1024)
def _decoded(encoder: Encoder, ids: tuple[int, ...]) -> str:
    return encoder.decode(ids)


def with_sentinel(message: Plain, mark: str) -> Plain:
    """The message with `mark` before its first word: of the reasoning, of the content, of the first call's name."""
    out = dict(message)
    for field in ("reasoning_content", "reasoning"):
        if str(out.get(field) or "").strip():
            out[field] = mark + out[field]
    content = out.get("content")
    if isinstance(content, str) and content.strip():
        out["content"] = mark + content
    elif isinstance(content, list):
        out["content"] = _marked_parts(content, mark)
    if out.get("tool_calls"):
        first, *rest = out["tool_calls"]
        function = {**first["function"], "name": mark + first["function"]["name"]}
        out["tool_calls"] = [{**first, "function": function}, *rest]
    return out


def _marked_parts(parts: list[Plain], mark: str) -> list[Plain]:
    """The first text part marked; an image before it has no character to hold a mark."""
    out, done = [], False
    for part in parts:
        if not done and str(part.get("text") or "").strip():
            part, done = {**part, "text": mark + part["text"]}, True
        out.append(part)
    return out


def anchors_in(text: str, marked: str) -> dict[int, int]:
    """Offsets in `text` of the sentinels of `marked`, the same prompt rendered with them.

    A template that strips white space can't do so behind a sentinel, so white space may be missing there.
    """
    found: dict[int, int] = {}
    at = 0
    for stretch, index in split_at_sentinels(marked):
        if not text.startswith(stretch, at):
            stretch = stretch.lstrip()
            if not text.startswith(stretch, at):
                break
        at += len(stretch)
        if index is not None:
            found.setdefault(index, at)
    return found
