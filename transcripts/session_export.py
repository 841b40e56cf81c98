"""A saved conversation for other programs and for people: Markdown, OpenAI chat JSON, a plain Session Trace."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..engine.conversation_tree import Node
from ..engine.messages import Message
from ..errors import DataError
from .model import Conversation, Entry, Transcript
from .openai_rows import openai_rows
from .session_file import SavedSession
from .session_images import ImageFolder, with_sources
from .writing import OutputFormat, render


def export(session: SavedSession, form: OutputFormat) -> str:
    """The conversation of `session` as a text that ends with a newline. Raises DataError if nothing was said."""
    if not session.conversation:
        raise DataError(f"nothing is said in {session.id}", "mlxchat sessions list shows where something is")
    transcript = Transcript("sts", str(session.path), (conversation_of(session, form == "openai"),))
    return "".join(render(transcript, form, bare=True))


def export_unsaved(nodes: Sequence[Node], form: OutputFormat) -> str:
    """The same of a branch that is in no file. Raises DataError if nothing was said."""
    if not nodes:
        raise DataError("nothing is said yet", "ask something first")
    entries = tuple(
        Entry(
            replace(node.message, generated=None),
            node.number,
            id=str(node.number),
            parent_id=None if node.parent is None else str(node.parent),
            model=node.model,
        )
        for node in nodes
    )
    transcript = Transcript("sts", "this chat", (Conversation("chat", (), entries=entries),))
    return "".join(render(transcript, form, bare=True))


def openai_messages(session: SavedSession) -> list[dict[str, object]]:
    """The messages of the conversation in the layout of OpenAI's chat API."""
    rows = list(openai_rows(conversation_of(session), bare=True))
    messages: list[dict[str, object]] = rows[0]["messages"] if rows else []
    return messages


def conversation_of(session: SavedSession, embed: bool = False) -> Conversation:
    """The branch that was spoken on last. `embed`: pictures as data: URLs, not as paths."""
    images = ImageFolder(session.path.parent)

    def plain(message: Message) -> Message:
        message = replace(images.located(message), generated=None)
        return with_sources(message, _data_url) if embed else message

    entries = tuple(replace(entry, message=plain(entry.message)) for entry in session.conversation)
    return Conversation(session.id, (), title=session.title or None, entries=entries, extra=session.settings.to_json())


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
