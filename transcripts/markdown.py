"""A conversation as a markdown page for people: the branch that was spoken on last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..engine.messages import FilePart, ImagePart, Message, Part, TextPart
from .model import Conversation
from .trees import Paths

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TITLES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool result"}


def markdown(conversation: Conversation) -> Iterator[str]:
    """The page, in pieces. Control characters are left out; code fences are longer than any in what they hold."""
    yield f"# {_one_line(conversation.title or conversation.id)}\n"
    if conversation.parent:
        yield f"\nStarted from {_one_line(conversation.parent)}.\n"
    paths = Paths(conversation.entries)
    leaves = paths.leaves()
    if len(leaves) > 1:
        yield f"\n{len(leaves)} branches; this is the last of them.\n"
    for entry in paths.to(leaves[-1]) if leaves else []:
        yield from _message(entry.message, entry.model, entry.hidden_reasoning)


def _message(message: Message, model: str | None, hidden: bool) -> Iterator[str]:
    about = model if message.role == "assistant" else message.name
    yield f"\n## {_TITLES[message.role]}{f' ({_one_line(about)})' if about else ''}\n"
    if message.reasoning:
        yield f"\n<details><summary>Reasoning</summary>\n\n{_fenced(message.reasoning)}\n</details>\n"
    elif hidden:
        yield "\n*(reasoned; the transcript doesn't hold what)*\n"
    for part in message.content:
        yield f"\n{_part(part, message.role)}\n"
    for call in message.tool_calls:
        arguments = json.dumps(call.arguments, ensure_ascii=False, indent=2)
        yield f"\nCalls `{_one_line(call.name).replace('`', '')}`:\n\n{_fenced(arguments, 'json')}"
    if message.interrupted:
        yield "\n*(interrupted)*\n"


def _part(part: Part, role: str) -> str:
    if isinstance(part, ImagePart):
        where = "inside the transcript" if part.source.startswith("data:") else part.source[:500]
        return f"*(image: {_one_line(where)})*"
    if isinstance(part, FilePart):
        return f"{_one_line(part.name)}:\n\n{_fenced(part.text)}".rstrip("\n")
    assert isinstance(part, TextPart)
    return _fenced(part.text).rstrip("\n") if role == "tool" else _clean(part.text)


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{_clean(text)}\n{fence}\n"


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _one_line(text: str) -> str:
    return " ".join(_clean(text).split())
