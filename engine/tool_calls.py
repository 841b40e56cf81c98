"""From segments of sampled text to a reply: reasoning, words and tool calls. A malformed call is kept as words."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .marker_sets import Markers
from .markers import Segment
from .messages import ToolCall

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

ParseCall = Callable[[str, Any], Any]

_HARMONY_CALL = re.compile(r"to=\s*(?:functions\.)?([\w.-]+)")


@dataclass(frozen=True)
class ParsedCalls:
    """What one tool segment holds; `problem` says in a few words why it is kept as words instead."""

    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Reply:
    """What one reply says. `notices` are lines for the user about calls that could not be read."""

    reasoning: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    notices: tuple[str, ...] = ()

    def same_as(self, other: Reply) -> bool:
        """Equal but for white space around the parts and the calls' ids and spelling."""
        return (
            self.reasoning.strip() == other.reasoning.strip()
            and self.text.strip() == other.text.strip()
            and [(call.name, call.arguments) for call in self.calls]
            == [(call.name, call.arguments) for call in other.calls]
        )


def new_call_id() -> str:
    """Nine letters and digits: the only form that every known template takes."""
    return secrets.token_hex(5)[:9]


class ToolCallReader:
    """Reads the text of tool segments with the model's own parser from mlx-lm."""

    def __init__(
        self,
        markers: Markers,
        parse: ParseCall | None,
        tools: Sequence[dict[str, Any]] = (),
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._markers = markers
        self._parse = parse
        self._tools = list(tools)
        self._new_id = new_id

    def read(self, text: str, closed: bool = True) -> ParsedCalls:
        """The calls in the text of one tool segment, markers and all. Never raises: see `ParsedCalls.problem`."""
        if not closed:
            return ParsedCalls(problem="the tool call was cut off")
        try:
            return ParsedCalls(tuple(self._call(one, text) for one in self._parsed(self._body(text))))
        except Exception as error:  # a parser may raise anything on what a model wrote
            return ParsedCalls(problem=f"a tool call could not be read ({_one_line(error)})")

    def _body(self, text: str) -> str:
        if self._markers.tool is None:
            return text
        opening, closing = self._markers.tool
        return text.removeprefix(opening).removesuffix(closing)

    def _parsed(self, text: str) -> list[dict[str, Any]]:
        if self._markers.harmony:
            return [_harmony_call(text)]
        if self._parse is None:
            raise ValueError("this model has no tool parser")
        found = self._parse(text, self._tools or None)
        return list(found) if isinstance(found, list) else [found]

    def _call(self, found: dict[str, Any], text: str) -> ToolCall:
        name, arguments = found["name"], found.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments) if arguments.strip() else {}
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            raise ValueError("no name, or arguments that are no object")
        return ToolCall(id=str(found.get("id") or self._new_id()), name=name, arguments=arguments, raw=text)


def parser_for(tokenizer: TokenizerWrapper, markers: Markers, template_source: str) -> ParseCall | None:
    """mlx-lm's parser for the calls this template asks for; None if there is none."""
    parse: ParseCall | None = tokenizer.tool_parser
    if parse is not None and markers.tool and tokenizer.tool_call_start == markers.tool[0]:
        return parse
    if markers.tool != ("<tool_call>", "</tool_call>"):
        return None
    from mlx_lm.tool_parsers import json_tools, qwen3_coder

    chosen: ParseCall = (qwen3_coder if "<function=" in template_source else json_tools).parse_tool_call
    return chosen


def reply_of(segments: Iterable[Segment], reader: ToolCallReader) -> Reply:
    """The segments of one reply, put together."""
    reasoning, words = "", ""
    calls: list[ToolCall] = []
    notices: list[str] = []
    for segment in segments:
        if segment.kind == "reasoning":
            reasoning += segment.text
        elif segment.kind == "text":
            words += segment.text
        else:
            parsed = reader.read(segment.text, segment.closed)
            calls += parsed.calls
            if parsed.problem:
                notices.append(parsed.problem)
                words += segment.text
    text = words.rstrip() if calls else words
    return Reply(reasoning.strip(), text, tuple(calls), tuple(notices))


def _harmony_call(text: str) -> dict[str, Any]:
    header, _, body = text.partition("<|message|>")
    named = _HARMONY_CALL.search(header)
    if named is None:
        raise ValueError("no recipient")
    return {"name": named.group(1), "arguments": json.loads(body) if body.strip() else {}}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
