"""A cached engine and an uncached one on the same tiny model: what the first is asked, the second is asked too.

After each request the logits of every call from the restored position on are compared bit for bit, the shapes of the
calls too, and the position itself is compared with the one that the design's rules give (`rewind_oracle`).
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlxchat.engine import beginning
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import Event, TurnDone, TurnFailed
from mlxchat.engine.messages import Message
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions
from mlxchat.engine.prompts import Prompt
from mlxchat.engine.request import Request
from mlxchat.engine.setup import Machinery
from mlxchat.engine.stats import RequestStats
from support import tiny_models, tiny_tokenizer
from support.rewind_oracle import FedLog, Ids, Layers, Ledger
from support.rewind_words import END, OTHER_END
from support.tiny_tokenizer import Family

LAYERS: dict[str, Layers] = {
    "qwen3": "global",
    "gemma3_text": "local",
    "gemma3n": "local",
    "gemma4_text": "local",
    "gpt_oss": "local",
    "qwen3_5": "recurrent",
}
_numbers = itertools.count(1_000_000)


@dataclass(frozen=True)
class Call:
    """One model call: where it began, how many ids it fed, and, of a call of one id, the logits [vocabulary].

    The last prompt token and every decoded one have calls of their own; nobody looks at the logits of longer calls.
    """

    start: int
    length: int
    logits: np.ndarray | None


@dataclass(frozen=True)
class Asked:
    """One request. oracle: what a perfect cache would prefill; expected: where the design's rules restore to."""

    prompt: Prompt
    message: Message
    stats: RequestStats
    oracle: int
    expected: int
    calls: list[Call]
    wanted: list[Call]

    @property
    def ids(self) -> Ids:
        """The prompt."""
        return tuple(self.prompt.ids.tolist())

    def equal(self) -> bool:
        """Whether every call from the restored position on gave the bits of the uncached run."""
        pairs = [(a.logits, b.logits) for a, b in zip(self.calls, self.wanted, strict=True)]
        seen = [(a, b) for a, b in pairs if a is not None and b is not None]
        assert len(seen) > self.stats.completion_tokens  # the prompt's last token, and what was sampled
        return all(np.array_equal(a, b) for a, b in seen)


class Voice:
    """Takes the place of the test script: the next request samples the next reply put here."""

    def __init__(self) -> None:
        self.replies: deque[list[int]] = deque()

    def sampler(self) -> Callable[[mx.array], mx.array]:
        ids = self.replies.popleft()
        position = 0

        def sample(logprobs: mx.array) -> mx.array:
            nonlocal position
            token = ids[min(position, len(ids) - 1)]
            position += 1
            return (mx.argmax(logprobs, axis=-1) * 0 + token).astype(mx.uint32)

        return sample


class Host:
    """One engine, tapped: its prompts, its calls, what it samples."""

    def __init__(self, folder: Path, work: Path, name: str, *, cached: bool, drop_live: bool) -> None:
        self.voice = Voice()
        self.calls: list[Call] = []
        self.prompts: list[Prompt] = []
        self.notices: list[str] = []
        self.log = work / f"{name}.jsonl"
        cache = CacheOptions(enabled=cached, directory=work / name, budget_bytes=1 << 30)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLXCHAT_TEST_CALL_LOG", str(self.log))
            patch.setenv("MLXCHAT_TEST_DROP_LIVE", "1" if drop_live else "")
            self.engine = Engine.start(EngineOptions(model=str(folder), cache=cache), self.notices.append)
        self.machinery: Machinery = self.engine.call(lambda machinery: machinery)  # type: ignore[assignment]
        self.engine.call(self._tap)

    def _tap(self, machinery: Machinery) -> None:
        runner, turns = machinery.loop._runner, machinery.loop._turns
        forward, start = runner.forward, turns.start

        def forwarding(request: int, sequence: int, live: Any, at: int, ids: mx.array) -> mx.array:
            logits = forward(request, sequence, live, at, ids)
            seen = np.array(logits[0, -1].astype(mx.float32)) if ids.size == 1 else None
            self.calls.append(Call(at, ids.size, seen))
            return logits

        def starting(request: Request, sequence: Any, reuse: Any) -> Any:
            run = start(request, sequence, reuse)
            self.prompts.append(run.prompt)
            return run

        runner.forward, turns.start = forwarding, starting  # type: ignore[method-assign]
        turns._script = self.voice  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        return list(self.machinery.model.tokenizer.encode(text, add_special_tokens=False))

    def hear(self, events: Iterable[Event], reply: list[int]) -> TurnDone:
        """Let the model say `reply` and wait for the end of the request."""
        self.calls.clear()
        self.voice.replies.append(reply)
        last = list(events)[-1]
        assert isinstance(last, TurnDone), last
        self.engine.call(_check)
        return last

    def close(self) -> None:
        self.engine.close()
        assert self.notices == []


def _check(machinery: Machinery) -> None:
    if machinery.store is not None:
        machinery.store.check()
    machinery.loop.reuse.trie.check()


def _asked(engine: Engine, request: Request) -> Iterator[Event]:
    engine.submit(request)
    while True:
        event = request.events.get(timeout=600)
        yield event
        if isinstance(event, TurnDone | TurnFailed):
            return


class Rig:
    """Both engines, and the books. One conversation at a time; all conversations share one system prompt."""

    def __init__(self, kind: str, family: Family, work: Path, uncached: Host, *, drop_live: bool) -> None:
        self.kind, self.family, self.layers, self.drop_live = kind, family, LAYERS[kind], drop_live
        name = "dropped" if drop_live else "live"
        self.cached = Host(work / "model", work, name, cached=True, drop_live=drop_live)
        self._uncached = uncached
        self._fed = FedLog(self.cached.log)
        self._ledger = Ledger(self.layers, drop_live)

    def chat(self, system: str) -> Chat:
        return Chat(self.cached.engine, system)

    def ask(
        self,
        chat: Chat,
        message: Message | None,
        reply: str | list[int],
        options: RequestOptions,
        *,
        end: str = "",
        sound: bool = True,
    ) -> Asked:
        """Ask `message` (None: try the last one again) and hold the answer against the uncached engine and the books.

        reply   what the model will sample, as text or ids; `end` its end token, the family's own by default
        sound   assert equal logits (a test that plants a fault looks for itself)
        """
        words = self.cached.encode(reply) if isinstance(reply, str) else reply
        said = [*words, *self.cached.encode(end or END[self.family])]
        events = chat.retry(options) if message is None else chat.ask(message, options)
        self._fed.read()
        done = self.cached.hear(events, said)
        prompt, calls = self.cached.prompts[-1], list(self.cached.calls)
        ids = tuple(prompt.ids.tolist())
        expected = self._ledger.greatest(chat._name, ids)
        wanted = self._without_cache(tuple(chat.messages[:-1]), options, said, done.stats.cached_tokens)
        reason = self._ledger.reason(ids, expected)
        self._note(chat._name, prompt, done)
        oracle = max(1, len(ids) - self._fed.longest_match(ids))
        asked = Asked(prompt, done.message, done.stats, oracle, expected, calls, wanted)
        assert [(call.start, call.length) for call in calls] == [(call.start, call.length) for call in wanted]
        assert asked.stats.cached_tokens == expected
        assert asked.stats.shortfall_reason == reason
        assert not sound or asked.equal()
        return asked

    def _without_cache(
        self, messages: tuple[Message, ...], options: RequestOptions, said: list[int], position: int
    ) -> list[Call]:
        """The calls of the uncached engine from `position` on, with one more cut there."""
        real = beginning.cuts
        host = self._uncached
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                beginning, "cuts", lambda n, marks, **more: sorted({*real(n, marks, **more), *({position} - {0})})
            )
            request = Request(next(_numbers), "uncached", messages, options)
            host.hear(_asked(host.engine, request), said)
        return [call for call in host.calls if call.start >= position]

    def _note(self, name: str, prompt: Prompt, done: TurnDone) -> None:
        generated = done.message.generated
        assert generated is not None
        stays = bool(done.message.tool_calls) or not (done.message.reasoning or prompt.scaffold_ids)
        ids = tuple(prompt.ids.tolist())
        marks = [(mark.position, mark.kind) for mark in prompt.marks]
        self._ledger.note(name, ids, marks, generated.ids, not stays, done.stats.cached_tokens)


def make_model(work: Path, kind: str, family: Family) -> Path:
    """A folder that loads like any other: tiny weights, tiny tokenizer, the family's template and end tokens."""
    folder = tiny_models.save(work / "model", kind, **tiny_models.SMALLER.get(kind, {}))
    tiny_tokenizer.build(folder, family)
    config = json.loads((folder / "config.json").read_text())
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    other = [token["id"] for token in vocabulary if token["content"] == OTHER_END.get(family)]
    config["eos_token_id"] = [*tiny_tokenizer.end_ids(family), *other]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class Rigs:
    """Rigs by (kind, family, drop_live), made when first asked for: loading is cheap, compiling is not.

    Those of one kind and family share their uncached engine. A context manager that closes them all.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._uncached: dict[tuple[str, Family], tuple[Path, Host]] = {}
        self._rigs: dict[tuple[str, Family, bool], Rig] = {}

    def __call__(self, kind: str, family: Family, drop_live: bool) -> Rig:
        if (kind, family) not in self._uncached:
            work = self._folders.mktemp(f"{kind}-{family}")
            host = Host(make_model(work, kind, family), work, "uncached", cached=False, drop_live=False)
            self._uncached[kind, family] = work, host
        if (kind, family, drop_live) not in self._rigs:
            work, host = self._uncached[kind, family]
            self._rigs[kind, family, drop_live] = Rig(kind, family, work, host, drop_live=drop_live)
        return self._rigs[kind, family, drop_live]

    def __enter__(self) -> Rigs:
        return self

    def __exit__(self, *exc: object) -> None:
        for rig in self._rigs.values():
            rig.cached.close()
        for _, host in self._uncached.values():
            host.close()
