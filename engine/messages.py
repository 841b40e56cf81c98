"""Messages as plain data: what a person, a tool or the model said. No MLX, no tokenizer.

The fields follow the one internal model that every transcript format is read into.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class TextPart:
    """Words."""

    text: str


@dataclass(frozen=True)
class FilePart:
    """A pasted or attached text file; rendered as its text under its name."""

    name: str
    text: str


@dataclass(frozen=True)
class ImagePart:
    """A picture, by where its bytes are; the message it came with keeps it on every later turn."""

    source: str


Part = TextPart | FilePart | ImagePart


@dataclass(frozen=True)
class ToolCall:
    """One call the model asked for. `raw` is the exact text it was written as, kept for lossless export."""

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The call as `--json` prints it."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True)
class Generated:
    """The ids behind an assistant message that was sampled here, kept so that later prompts can splice them in.

    scaffold_text   what the generation prompt put after the assistant header (for example `<think>` and a newline)
    scaffold_ids    its ids, as fed
    ids             every id fed after the generation prompt, in order, the end token left out
    answer_start    index into `ids` of the first id of the answer, past the reasoning and its closing marker
    """

    scaffold_text: str
    scaffold_ids: tuple[int, ...]
    ids: tuple[int, ...]
    answer_start: int


@dataclass(frozen=True)
class Message:
    """One message. Frozen: an edit makes a new one, so that a conversation tree can share them."""

    role: Role
    content: tuple[Part, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    generated: Generated | None = field(default=None, compare=False, repr=False)
    interrupted: bool = False

    @property
    def text(self) -> str:
        """The words of all text and file parts, in order."""
        words = []
        for part in self.content:
            if isinstance(part, TextPart):
                words.append(part.text)
            elif isinstance(part, FilePart):
                words.append(f"{part.name}:\n{part.text}\n")
        return "\n".join(words) if len(words) > 1 else "".join(words)

    def with_text(self, text: str) -> Message:
        """The same message with other words, its sampled ids dropped (they no longer say this)."""
        return replace(self, content=(TextPart(text),), generated=None)


def system(text: str) -> Message:
    """A system message."""
    return Message("system", (TextPart(text),))


def user(text: str) -> Message:
    """A user message."""
    return Message("user", (TextPart(text),))


def assistant(text: str, reasoning: str | None = None) -> Message:
    """An assistant message that was not sampled here (history from a file, a placeholder)."""
    return Message("assistant", (TextPart(text),), reasoning=reasoning)


def tool_result(text: str, tool_call_id: str | None = None, name: str | None = None) -> Message:
    """A tool's answer."""
    return Message("tool", (TextPart(text),), tool_call_id=tool_call_id, name=name)
