"""A cached engine and an uncached one on the same tiny vision model: what the first is asked, the second is asked too.

After each request every call's logits from the restored position on are compared bit for bit, and its shapes too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlxchat.engine import loop
from mlxchat.engine.chat import Chat
from mlxchat.engine.messages import ImagePart, Message, Part, TextPart
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.engine.prompts import Prompt
from mlxchat.engine.request import Request
from mlxchat.engine.stats import RequestStats
from support import vision_models
from support.oracle import common
from support.rewind_rig import Call, Host, _asked
from support.vision_models import SPECS, VisionFamily

OPTIONS = RequestOptions(sampling=SamplingOptions(max_tokens=400))
_numbers = itertools.count(2_000_000)


@dataclass(frozen=True)
class Seen:
    """One request: the cached engine's prompt, answer and calls, and the uncached engine's calls past the same point."""

    prompt: Prompt
    message: Message
    stats: RequestStats
    calls: list[Call]
    wanted: list[Call]

    def equal(self) -> bool:
        """Whether the last logits of every call are bit-equal."""
        assert [(call.start, call.length) for call in self.calls] == [(call.start, call.length) for call in self.wanted]
        pairs = [(a.logits, b.logits) for a, b in zip(self.calls, self.wanted, strict=True)]
        seen = [(a, b) for a, b in pairs if a is not None and b is not None]
        assert seen
        return all((a == b).all() for a, b in seen)


class VisionRig:
    """Both engines, and a folder of pictures."""

    def __init__(self, family: VisionFamily, work: Path, *, drop_live: bool = False) -> None:
        self.family = family
        self.work = work
        folder = vision_models.make(work / "model", family)
        self.cached = Host(folder, work, "cached", cached=True, drop_live=drop_live)
        self._uncached = Host(folder, work, "uncached", cached=False, drop_live=False)
        self._end = SPECS[family].talk[1]
        self._fed: list[list[int]] = []

    def chat(self, system: str | None = "Answer the user.") -> Chat:
        return Chat(self.cached.engine, system)

    def picture(self, seed: int, width: int = 160, height: int = 120) -> ImagePart:
        """A file of its own for every seed and size."""
        file = self.work / f"{seed}-{width}-{height}.png"
        if not file.exists():
            vision_models.save_picture(file, width, height, seed)
        return ImagePart(str(file))

    def ask(
        self, chat: Chat, message: Message | None, reply: str = "a cache", options: RequestOptions = OPTIONS
    ) -> Seen:
        """Ask `message` (None: the last one again); the model will sample `reply`."""
        said = self.cached.encode(reply + self._end)
        done = self.cached.hear(chat.retry(options) if message is None else chat.ask(message, options), said)
        prompt, calls = self.cached.prompts[-1], list(self.cached.calls)
        wanted = self.without_cache(tuple(chat.messages[:-1]), said, done.stats.cached_tokens, options)
        return Seen(prompt, done.message, done.stats, calls, wanted)

    def without_cache(
        self, messages: tuple[Message, ...], said: list[int], position: int, options: RequestOptions = OPTIONS
    ) -> list[Call]:
        """The calls of the uncached engine from `position` on, with one more cut there."""
        real = loop.cuts
        host = self._uncached
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "cuts", lambda n, marks, **more: sorted({*real(n, marks, **more), *({position} - {0})}))
            request = Request(next(_numbers), "uncached", messages, options)
            host.hear(_asked(host.engine, request), said)
        return [call for call in host.calls if call.start >= position]

    def close(self) -> None:
        self.cached.close()
        self._uncached.close()


def says(text: str, *pictures: ImagePart) -> Message:
    """A user's message: pictures first, then words."""
    parts: tuple[Part, ...] = (*pictures, TextPart(text))
    return Message("user", parts)
