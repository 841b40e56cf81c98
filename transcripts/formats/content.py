"""Message content in the shapes that formats write it: a string, or parts of text, images, reasoning, tool calls."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from ...engine.messages import FilePart, ImagePart, Part, TextPart, ToolCall
from .fields import Object, array, as_words, first_text, from_json, label, obj, objects, text

_THINK = re.compile(r"\s*<think>(.*?)</think>(.*)", re.DOTALL)
_TEXT_TYPES = ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal")
_THINKING_TYPES = ("thinking", "reasoning")
_CALL_TYPES = ("tool_use", "toolCall", "tool_call")


@dataclass
class Content:
    """What one content value held, sorted.

    hidden    there was reasoning that can't be read
    results   tool results among the parts, as they stand
    other     parts of kinds that mean nothing here
    """

    parts: list[Part] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Object] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)
    hidden: bool = False


def content_of(value: Any) -> Content:
    """Sort any content value."""
    out = Content()
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, str):
        _add_text(out, value)
    for part in array(value):
        if isinstance(part, str):
            _add_text(out, part)
        else:
            _add_part(out, obj(part), part)
    return out


def parts_of(value: Any) -> tuple[Part, ...]:
    """The text, files and images of a content value."""
    return tuple(content_of(value).parts)


def words_of(value: Any) -> str:
    """The text of a content value."""
    return "\n".join(part.text for part in content_of(value).parts if isinstance(part, TextPart))


def _add_text(out: Content, words: Any) -> None:
    if isinstance(words, str) and words:
        out.parts.append(TextPart(words))


def _add_part(out: Content, part: Object, raw: Any) -> None:
    kind = part.get("type")
    if kind in _TEXT_TYPES or (kind is None and isinstance(part.get("text"), str)):
        _add_text(out, first_text(part.get("text"), part.get("refusal")))
    elif kind in _THINKING_TYPES:
        _add_thinking(out, part)
    elif kind == "redacted_thinking":
        out.hidden = True
    elif kind in _CALL_TYPES:
        arguments = next((part[name] for name in ("input", "arguments") if name in part), None)
        out.calls.append(tool_call(part.get("id"), part.get("name"), arguments))
    elif kind == "tool_result":
        out.results.append(part)
    elif (file := _file_of(part)) is not None:
        out.parts.append(file)
    elif source := image_source(part):
        out.parts.append(ImagePart(source))
    elif raw is not None:
        out.other.append(raw)


def _add_thinking(out: Content, part: Object) -> None:
    words = first_text(part.get("thinking"), part.get("reasoning"), part.get("text"))
    if words is None and isinstance(part.get("content"), list):
        words = text(words_of(part["content"]))
    if words is None or part.get("redacted") is True:
        out.hidden = True
    else:
        out.reasoning.append(words)


def _file_of(part: Object) -> FilePart | None:
    """A text file: ours ({name, text}), or the chat form, whose data is a data: URL."""
    if part.get("type") != "file":
        return None
    if isinstance(part.get("name"), str) and isinstance(part.get("text"), str):
        return FilePart(part["name"], part["text"])
    inner = obj(part.get("file"))
    data = text_of_data_url(inner.get("file_data"))
    return None if data is None else FilePart(label(inner.get("filename")) or "file", data)


def text_of_data_url(value: Any) -> str | None:
    """The text in a data: URL of type text/…; None if it is anything else."""
    if not isinstance(value, str) or not value.startswith("data:text/") or "," not in value:
        return None
    head, _, body = value.partition(",")
    try:
        raw = base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
        return raw.decode()
    except (ValueError, binascii.Error):
        return None


def image_source(part: Object) -> str | None:
    """Where an image's bytes are: a URL (data: too) or a path."""
    kind = part.get("type")
    if not isinstance(kind, str) or "image" not in kind:
        return None
    for inner in (part.get("image_url"), part.get("image"), part.get("source"), part.get("url"), part.get("path")):
        if isinstance(inner, str) and inner:
            return inner
        found = _image_in(obj(inner))
        if found:
            return found
    return _image_in(part)


def _image_in(value: Object) -> str | None:
    data, kind = value.get("data"), first_text(value.get("media_type"), value.get("mimeType"), value.get("mime_type"))
    if isinstance(data, str) and data:
        return data if data.startswith("data:") else f"data:{kind or 'image/png'};base64,{data}"
    return first_text(value.get("url"), value.get("path"), value.get("file_path"))


def tool_call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    """A call whose arguments are an object or text; text is kept as it was written.

    Templates need an object: text that holds none becomes {"input": text}.
    """
    raw = arguments if isinstance(arguments, str) else None
    value = from_json(arguments)
    if raw is not None and not isinstance(value, dict):
        value = {"input": raw} if raw.strip() else {}
    elif not isinstance(value, dict):
        value = {} if value is None else {"input": value}
    return ToolCall(label(call_id) or "", label(name) or "", value, raw)


def written_arguments(call: ToolCall) -> str | None:
    """A call's arguments as they were written; None if `raw` isn't that (there is none, or it is the whole call)."""
    if call.raw is None or tool_call(call.id, call.name, call.raw).arguments != call.arguments:
        return None
    return call.raw


def words_or_parts(parts: tuple[Part, ...], written: Callable[[Part], Object]) -> str | list[Object]:
    """A message's content as formats have it: words alone as a string, else a list of parts as `written` has them."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [written(part) for part in parts]


def split_think(words: str) -> tuple[str | None, str]:
    """(reasoning, answer) of text that opens with a <think> block; (None, the text) of any other."""
    found = _THINK.match(words)
    if not found:
        return None, words
    return found[1].strip("\n") or None, found[2].lstrip("\n")


def reasoning_of(message: Object) -> tuple[str | None, bool]:
    """(reasoning, whether some of it is hidden) from the fields that chat formats put it in."""
    words = first_text(
        *(message.get(name) for name in ("reasoning_content", "reasoning", "thinking", "reasoningContent"))
    )
    hidden = False
    if words is None:
        found: list[str] = []
        for block in [*objects(message.get("thinking_blocks")), *objects(message.get("reasoning_details"))]:
            inner = first_text(block.get("thinking"), block.get("text"), block.get("summary"))
            hidden = hidden or inner is None
            found += [inner] if inner else []
        words = "\n".join(found) or None
    return words, hidden


def result_words(value: Any) -> tuple[Part, ...]:
    """The content of a tool result: parts, or any JSON as its text."""
    parts = parts_of(value)
    if parts or value in (None, "", []):
        return parts
    return (TextPart(as_words(value)),)
