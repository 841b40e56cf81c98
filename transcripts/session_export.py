"""A saved conversation for other programs and for people: Markdown, OpenAI chat JSON, a plain Session Trace."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from ..engine.messages import FilePart, ImagePart, Message, Part, TextPart, ToolCall
from .model import Entry
from .session_file import SavedSession
from .session_images import ImageFolder
from .sts import HARNESS, message_line

ExportFormat = Literal["markdown", "openai", "sts"]
FORMATS: tuple[str, ...] = get_args(ExportFormat)
_TITLES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool result"}


def export(session: SavedSession, form: ExportFormat) -> str:
    """The conversation of `session` (its other branches left out) as a text that ends with a newline."""
    images = ImageFolder(session.path.parent)
    entries = [replace(entry, message=images.located(entry.message)) for entry in session.conversation]
    writers: dict[str, Callable[[SavedSession, list[Entry]], str]] = {
        "markdown": _markdown,
        "openai": _openai,
        "sts": _sts,
    }
    return writers[form](session, entries)


# -- Session Trace ---------------------------------------------------------------------------------------------


def _sts(session: SavedSession, entries: list[Entry]) -> str:
    header: dict[str, Any] = {"type": "session", "harness": HARNESS, "id": session.id}
    if session.title:
        header["name"] = session.title
    header |= session.settings.to_json()
    plain = [replace(entry, message=replace(entry.message, generated=None)) for entry in entries]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (header, *map(message_line, plain)))


# -- OpenAI chat -----------------------------------------------------------------------------------------------


def _openai(session: SavedSession, entries: list[Entry]) -> str:
    return json.dumps({"messages": [openai_message(entry.message) for entry in entries]}, ensure_ascii=False) + "\n"


def openai_message(message: Message) -> dict[str, Any]:
    """One message in the layout of OpenAI's chat API; reasoning as `reasoning_content`."""
    out: dict[str, Any] = {"role": message.role, "content": _openai_content(message.content)}
    if message.reasoning is not None:
        out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [_openai_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out


def _openai_content(parts: tuple[Part, ...]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, TextPart) for part in parts) and len(parts) <= 1:
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [_openai_part(part) for part in parts]


def _openai_part(part: Part) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": _data_url(part.source)}}
    text = part.text if isinstance(part, TextPart) else f"{part.name}:\n{part.text}\n"
    return {"type": "text", "text": text}


def _openai_call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _data_url(source: str) -> str:
    """A picture on this machine as a data: URL; anything else, and what can't be read, as it is."""
    if source.startswith(("data:", "http://", "https://")):
        return source
    try:
        data = Path(source).read_bytes()
    except OSError:
        return source
    kind = mimetypes.guess_type(source)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


# -- Markdown --------------------------------------------------------------------------------------------------


def _markdown(session: SavedSession, entries: list[Entry]) -> str:
    blocks = [f"# {session.title or session.id}"]
    if session.settings.model:
        blocks.append(f"*{session.settings.model}*")
    for entry in entries:
        blocks += _markdown_message(entry.message)
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _markdown_message(message: Message) -> list[str]:
    cut = " (interrupted)" if message.interrupted else ""
    blocks = [f"## {_TITLES[message.role]}{cut}"]
    if message.reasoning:
        blocks.append("\n".join(f"> {line}".rstrip() for line in message.reasoning.strip().split("\n")))
    for part in message.content:
        if isinstance(part, TextPart):
            blocks.append(part.text)
        elif isinstance(part, FilePart):
            blocks.append(f"`{part.name}`\n\n{fenced(part.text)}")
        else:
            blocks.append(f"![image]({part.source})")
    for call in message.tool_calls:
        blocks.append(f"Calls `{call.name}`:\n\n{fenced(json.dumps(call.arguments, ensure_ascii=False), 'json')}")
    return [block for block in blocks if block.strip()]


def fenced(text: str, kind: str = "") -> str:
    """A code block, its fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip(chr(10))}\n{fence}"
