"""All formats, in the order in which a file is held against them."""

from __future__ import annotations

from ...errors import UsageError
from . import (
    agentperf,
    atif,
    claude_code,
    codex,
    gptme,
    hash_traces,
    inspect_ai,
    llm_logs,
    lm_studio,
    mini_swe_agent,
    openai_chat,
    pi,
    responses,
    sharegpt,
    sts,
    swe_agent,
)
from .base import Format, Head

FORMATS: tuple[Format, ...] = (
    agentperf.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    sts.FORMAT,
    pi.FORMAT,
    atif.FORMAT,
    swe_agent.FORMAT,
    mini_swe_agent.FORMAT,
    sharegpt.FORMAT,
    inspect_ai.FORMAT,
    llm_logs.FORMAT,
    gptme.FORMAT,
    lm_studio.FORMAT,
    hash_traces.FORMAT,
    responses.FORMAT,
    openai_chat.FORMAT,
)
"""Those with a mark of their own come first; OpenAI chat, whose marks many others share, comes last."""


def names() -> tuple[str, ...]:
    """What `--format` takes."""
    return tuple(known.name for known in FORMATS)


def by_name(name: str) -> Format:
    """The format called `name`. Raises UsageError."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise UsageError(f"no transcript format is called {name!r}", f"--format takes {', '.join(names())}")


def recognise(head: Head) -> Format | None:
    """The format of a file that begins so."""
    return next((known for known in FORMATS if known.recognise(head)), None)
