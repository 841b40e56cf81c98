"""A cached engine and an uncached one on the same tiny vision model: what the first is asked, the second is asked too.

After each request every call's logits from the restored position on are compared bit for bit, and its shapes too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mlxchat.cache.keys import Ids, as_elements
from mlxchat.cache.trie import common_prefix
from mlxchat.engine import beginning
from mlxchat.engine.chat import Chat
from mlxchat.engine.cuts import cuts
from mlxchat.engine.messages import ImagePart, Message, Part, TextPart
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.engine.prompts import Prompt
from mlxchat.engine.request import Request
from mlxchat.engine.setup import Machinery
from mlxchat.engine.stats import RequestStats
from mlxchat.engine.vision_model import VisionModel
from support import vision_models
from support.rewind_rig import Call, Host, _asked
from support.vision_models import SPECS, VisionFamily

OPTIONS = RequestOptions(sampling=SamplingOptions(max_tokens=900))
MROPE: tuple[VisionFamily, ...] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
"""Families whose pictures shift the positions of what follows them."""
WHOLE: tuple[VisionFamily, ...] = ("gemma3", "gemma4")
"""Families whose pictures are seen whole, and have windows."""
RECURRENT: tuple[VisionFamily, ...] = ("qwen3_5", "lfm2_vl")
"""Families that stand at marks only, one token earlier where a mark is the prompt's end."""
NOT_ROW_INVARIANT: tuple[VisionFamily, ...] = ("qwen3_5",)
"""mlx-vlm scans its recurrent layers in chunks on the CPU: the last bits of a state depend on the calls that made it.
So the uncached engine makes these calls, too, in the part that was restored."""
_numbers = itertools.count(2_000_000)


@dataclass(frozen=True)
class Seen:
    """One request: the cached engine's prompt, answer and calls; the uncached engine's calls past the same point."""

    prompt: Prompt
    message: Message
    stats: RequestStats
    calls: list[Call]
    wanted: list[Call]

    @property
    def same_calls(self) -> bool:
        """Whether both made calls of the same shapes."""
        return [(one.start, one.length) for one in self.calls] == [(one.start, one.length) for one in self.wanted]

    @property
    def same_logits(self) -> bool:
        """Whether the prompt's last logits, and all of decoding, have the same bits."""
        ours, theirs = _single(self.calls), _single(self.wanted)
        positions = [at for at in ours if at >= len(self.prompt.ids) - 1]
        assert len(positions) >= self.stats.completion_tokens
        return all(np.array_equal(ours[at], theirs[at]) for at in positions)

    @property
    def equal(self) -> bool:
        """Both."""
        return self.same_calls and self.same_logits


def _single(calls: Iterable[Call]) -> dict[int, np.ndarray]:
    return {call.start: call.logits for call in calls if call.logits is not None}


@dataclass(frozen=True)
class _Made:
    """What a request left behind: the elements that it fed, and where the calls that fed them ended."""

    fed: Ids
    ends: frozenset[int]


class VisionRig:
    """Both engines, and a folder of pictures."""

    def __init__(self, family: VisionFamily, work: Path, uncached: Host, *, drop_live: bool) -> None:
        self.family = family
        self.work = work
        self.drop_live = drop_live
        name = "dropped" if drop_live else "live"
        self.cached = Host(work / "model", work, name, cached=True, drop_live=drop_live)
        self._uncached = uncached
        self._end = SPECS[family].talk[1]
        self._made: list[_Made] = []

    def chat(self, system: str | None = "Answer the user.") -> Chat:
        return Chat(self.cached.engine, system)

    def picture(self, seed: int, width: int = 160, height: int = 120) -> ImagePart:
        """A file of its own for every seed and size."""
        file = self.work / f"{seed}-{width}-{height}.png"
        if not file.exists():
            vision_models.save_picture(file, width, height, seed)
        return ImagePart(str(file))

    def words(self, tokens: int) -> str:
        """A text of so many tokens."""
        text = ""
        while len(self.cached.encode(text)) < tokens:
            text += " the"
        return text

    def ask(
        self, chat: Chat, message: Message | None, reply: str = "a cache", options: RequestOptions = OPTIONS
    ) -> Seen:
        """Ask `message` (None: the last one again); the model will sample `reply`."""
        said = self.cached.encode(reply + self._end)
        done = self.cached.hear(chat.retry(options) if message is None else chat.ask(message, options), said)
        prompt, calls = self.cached.prompts[-1], list(self.cached.calls)
        position = done.stats.cached_tokens
        schedule = self._schedule(as_elements(prompt.ids, prompt.pictures)[:position])
        wanted = self.without_cache(tuple(chat.messages[:-1]), said, position, schedule, options)
        fed = np.concatenate([prompt.ids, np.array(said[:-1], np.int32)])
        ends = {end for end in schedule if end <= position} | {call.start + call.length for call in calls}
        self._made.append(_Made(as_elements(fed, prompt.pictures), frozenset(ends)))
        return Seen(prompt, done.message, done.stats, calls, wanted)

    def _schedule(self, restored: Ids) -> frozenset[int]:
        """Where the calls ended that made what was restored."""
        length = len(restored)
        if self.family not in NOT_ROW_INVARIANT or not length:
            return frozenset({length} - {0})
        makers = self._made if self.drop_live else reversed(self._made)
        made = next(one for one in makers if length in one.ends and common_prefix(one.fed, restored) == length)
        return frozenset(end for end in made.ends if end <= length)

    def without_cache(
        self,
        messages: tuple[Message, ...],
        said: list[int],
        position: int,
        schedule: frozenset[int],
        options: RequestOptions = OPTIONS,
    ) -> list[Call]:
        """The calls of the uncached engine from `position` on; before it, calls end where `schedule` says."""
        own = self.family not in NOT_ROW_INVARIANT
        step = beginning.cuts.keywords.get("step", 2048) if hasattr(beginning.cuts, "keywords") else 2048  # type: ignore[attr-defined]

        def planned(length: int, marks: Iterable[int], whole: tuple[object, ...] = ()) -> list[int]:
            found = cuts(length, marks, step, whole)  # type: ignore[arg-type]
            return sorted({*(end for end in found if own or end > position), *schedule})

        host = self._uncached
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(beginning, "cuts", planned)
            request = Request(next(_numbers), "uncached", messages, options)
            host.hear(_asked(host.engine, request), said)
        return [call for call in host.calls if call.start >= position]

    @contextmanager
    def faulty(self, fault: type[VisionModel]) -> Iterator[None]:
        """Let the cached engine alone call its model through `fault`, a subclass that keeps no fields of its own."""
        machinery: Machinery = self.cached.machinery
        model = machinery.runner._model
        real = type(model)
        self.cached.engine.call(lambda _: setattr(model, "__class__", fault))
        try:
            yield
        finally:
            self.cached.engine.call(lambda _: setattr(model, "__class__", real))


class VisionRigs:
    """Rigs by (family, drop_live), made when first asked for. A context manager that closes them all."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._uncached: dict[VisionFamily, tuple[Path, Host]] = {}
        self._rigs: dict[tuple[VisionFamily, bool], VisionRig] = {}

    def __call__(self, family: VisionFamily, drop_live: bool = False) -> VisionRig:
        if family not in self._uncached:
            work = self._folders.mktemp(family)
            folder = vision_models.make(work / "model", family)
            self._uncached[family] = work, Host(folder, work, "uncached", cached=False, drop_live=False)
        if (family, drop_live) not in self._rigs:
            work, host = self._uncached[family]
            self._rigs[family, drop_live] = VisionRig(family, work, host, drop_live=drop_live)
        return self._rigs[family, drop_live]

    def __enter__(self) -> VisionRigs:
        return self

    def __exit__(self, *exc: object) -> None:
        for rig in self._rigs.values():
            rig.cached.close()
        for _, host in self._uncached.values():
            host.close()


def says(text: str, *pictures: ImagePart) -> Message:
    """A user's message: pictures first, then words."""
    parts: tuple[Part, ...] = (*pictures, TextPart(text))
    return Message("user", parts)


def thinks(reasoning: str, answer: str) -> str:
    """A reply whose reasoning the template drops once another user message follows."""
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


__all__ = ["MROPE", "OPTIONS", "RECURRENT", "WHOLE", "Seen", "VisionRig", "VisionRigs", "says", "thinks"]
