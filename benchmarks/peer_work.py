"""The fixed pieces of work that servers are compared on: lists of messages, and what is said after each answer.

An answer's first two thirds stand for reasoning: once the next user message comes, only the last third is kept, as a
template that drops reasoning would have it. Inside a tool loop the whole answer is kept.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

TEXT = """
cache window layer token block prompt restore rewind shared prefix writer thread index record offset answer question
tool result file line test build model memory disk
"""
WORDS = TEXT.split()
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Ask:
    """One request: who is asking, and everything said so far."""

    name: str
    conversation: str
    messages: Messages
    max_tokens: int


Work = Generator[Ask, str, None]
"""Yields requests; is sent the answer to each."""


def say(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def _system(rng: random.Random) -> dict[str, Any]:
    return {"role": "system", "content": " ".join(say(rng, 20) for _ in range(30))}


def _kept(answer: str) -> str:
    words = answer.split()
    return " ".join(words[len(words) * 2 // 3 :]) or "ok"


def rewind(turns: int = 5) -> Work:
    """One conversation."""
    rng = random.Random(7)
    chat = [_system(rng)]
    for turn in range(1, turns + 1):
        chat.append({"role": "user", "content": say(rng, 40)})
        answer = yield Ask(f"turn {turn}", "one", list(chat), 120)
        chat.append({"role": "assistant", "content": _kept(answer)})


def hard() -> Work:
    """Four conversations on one system prompt in rotation, then the first goes back to turn 2 with other words."""
    rng = random.Random(7)
    chats = [[_system(rng)] for _ in range(4)]
    for chat in chats[1:]:
        chat[0] = chats[0][0]
    for turn in range(1, 4):
        for number, chat in enumerate(chats, 1):
            chat.append({"role": "user", "content": say(rng, 40)})
            answer = yield Ask(f"turn {turn} of {number}", str(number), list(chat), 40)
            chat.append({"role": "assistant", "content": _kept(answer)})
    yield Ask("back to turn 2", "1", [*chats[0][:3], {"role": "user", "content": say(rng, 40)}], 40)


def agent(turns: int = 20, steps: int = 2) -> Work:
    """A long conversation in which each turn is a loop of tool results, whose reasoning is dropped when it is over."""
    rng = random.Random(11)
    chat = [_system(rng)]
    for turn in range(1, turns + 1):
        chat.append({"role": "user", "content": say(rng, 30)})
        begun = len(chat)
        for step in range(1, steps + 2):
            answer = yield Ask(f"turn {turn} step {step}", "agent", list(chat), 40)
            chat.append({"role": "assistant", "content": answer or "ok"})
            if step <= steps:
                chat.append({"role": "tool", "content": say(rng, 60)})
        for at in range(begun, len(chat)):
            if chat[at]["role"] == "assistant":
                chat[at] = chat[at] | {"content": _kept(chat[at]["content"])}


WORK = {"rewind": rewind, "hard": hard, "agent": agent}
