"""Where the transcripts for tests are, and what is counted in them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import Message
from mlxchat.transcripts.model import Transcript
from mlxchat.transcripts.reading import read

FIXTURES = Path(__file__).resolve().parents[1] / "transcripts" / "fixtures"
_PLACES = [folder / "shared" / "samples" for folder in Path(__file__).resolve().parents[3:]]
SAMPLES = next((place for place in _PLACES if place.is_dir()), _PLACES[0])


@dataclass(frozen=True)
class Counts:
    """What a reader found in a file. `reasoning`: messages whose reasoning is there; `hidden`: those that hide it."""

    format: str
    conversations: int
    messages: int
    requests: int
    tool_calls: int
    reasoning: int
    hidden: int
    usages: int
    skipped: int


def counts(transcript: Transcript) -> Counts:
    entries = [entry for conversation in transcript.conversations for entry in conversation.entries]
    return Counts(
        transcript.format,
        len(transcript.conversations),
        len(entries),
        len(transcript.requests),
        sum(len(entry.message.tool_calls) for entry in entries),
        sum(entry.message.reasoning is not None for entry in entries),
        sum(entry.hidden_reasoning for entry in entries),
        sum(entry.usage is not None for entry in entries),
        len(transcript.skipped),
    )


def fixture(name: str, format_name: str | None = None) -> Transcript:
    return read(FIXTURES / name, format_name)


def sample(name: str) -> Transcript:
    """A real file of the samples; where they are absent the test is skipped, by name."""
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"the sample transcripts are not beside the repository: {name}")
    return read(path)


def said(message: Message) -> tuple[str, str]:
    return (message.role, message.text)


def roles(transcript: Transcript, at: int = 0) -> str:
    """The first letters of the roles in one conversation."""
    return "".join(entry.message.role[0] for entry in transcript.conversations[at].entries)


def plain(value: Any) -> Any:
    """Dataclasses as plain values, for comparison with every field, those left out of == too."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
