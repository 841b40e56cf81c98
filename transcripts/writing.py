"""Writing transcripts: OpenAI chat messages, session traces (STS) or markdown, to a file or a stream."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ..engine.file_errors import unwritable
from ..errors import DataError, UsageError
from .markdown import markdown
from .model import Conversation, Transcript
from .openai_rows import openai_rows
from .sts_lines import sts_lines

OutputFormat = Literal["openai", "sts", "markdown"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("openai", "sts", "markdown")
_SUFFIXES: dict[str, OutputFormat] = {
    ".sts.jsonl": "sts",
    ".sts": "sts",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "openai",
    ".jsonl": "openai",
}


def format_for(path: str) -> OutputFormat | None:
    """The output format that a file's name asks for."""
    return next((found for suffix, found in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


def render(transcript: Transcript, to: OutputFormat, document: bool = False, bare: bool = False) -> Iterator[str]:
    """The text of the output, in pieces.

    document   OpenAI rows as one JSON value instead of lines
    bare       OpenAI rows without the field that keeps what chat completions have no place for
    Raises DataError if there is no text to write, UsageError for several conversations in one session trace.
    """
    conversations = [conversation for conversation in transcript.conversations if conversation.entries]
    if not conversations:
        raise DataError(f"{transcript.path} holds no text, only lengths", "it can be replayed, not converted")
    if to == "markdown":
        return _pages(conversations)
    if to == "sts":
        if len(conversations) > 1:
            raise UsageError(
                f"{len(conversations)} conversations don't fit into one session trace",
                "write --to openai, or to a folder",
            )
        return (_line(line) for line in sts_lines(conversations[0]))
    rows = (row for conversation in conversations for row in openai_rows(conversation, bare))
    return _document(list(rows)) if document else (_line(row) for row in rows)


def _pages(conversations: list[Conversation]) -> Iterator[str]:
    for at, conversation in enumerate(conversations):
        if at:
            yield "\n---\n\n"
        yield from markdown(conversation)


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _document(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield json.dumps(rows[0] if len(rows) == 1 else rows, ensure_ascii=False, indent=2) + "\n"


def write_file(path: Path, pieces: Iterator[str]) -> None:
    """Write a file whole or not at all, readable by its owner only. Raises OutputError."""
    new: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        new = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(pieces)
        new.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if new is not None:
            new.unlink(missing_ok=True)
