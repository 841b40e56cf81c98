"""The scripted model: a tiny real one whose words come from a file, held by a gate wherever a test says.

In a process of its own by `environment`, or in this one by `ScriptedEngine`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlxchat.engine import chat as chat_module
from mlxchat.engine.chat import Chat
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import Event, Notice, TextDelta, TurnDone, TurnFailed
from mlxchat.engine.messages import user
from mlxchat.engine.options import CacheOptions, EngineOptions, KVQuantization, RequestOptions, SamplingOptions
from mlxchat.engine.scripted import Script

from . import tiny_models, tiny_tokenizer
from .tiny_tokenizer import Family

PATIENCE_S = 30.0
POLL_S = 0.005

Reply = str | dict[str, Any]


def model_folder(folder: Path, kind: str = "qwen3", family: Family = "qwen3", **changes: Any) -> Path:
    """A whole folder: weights of `kind`, tokenizer and template of `family`; `changes` go to the config."""
    tiny_models.save(folder, kind, **changes)
    tiny_tokenizer.build(folder, family)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "eos_token_id": tiny_tokenizer.end_ids(family)}))
    return folder


def write_script(file: Path, *replies: Reply) -> Path:
    """One reply per request: its words, or a line of the script as engine/scripted.py describes it."""
    lines = [json.dumps({"text": reply} if isinstance(reply, str) else reply) for reply in replies]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def environment(home: Path, **switches: str | Path | None) -> dict[str, str]:
    """For a process that runs `python -m mlxchat`: this one's paths and BLAS, a home of its own, and the test switches.

    `switches` by the end of their names: call_log, drop_live, think_min, script, gate; None leaves one out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLXCHAT_", "NO_", "FORCE_"))}
    if "MLXCHAT_BLAS" in os.environ:
        kept["MLXCHAT_BLAS"] = os.environ["MLXCHAT_BLAS"]
    kept |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "MLXCHAT_HOME": str(home)}
    return kept | {f"MLXCHAT_TEST_{name.upper()}": str(value) for name, value in switches.items() if value is not None}


def wait_until(ready: Callable[[], bool], what: str) -> None:
    """Poll until `ready`; AssertionError that names `what` once patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(POLL_S)


class GateFolder:
    """The test's side of engine/scripted.py's gate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._point = ""

    def hold(self, point: str) -> None:
        """From now on the engine stops at `point`; what was held before goes on."""
        self._point = point
        (self.folder / "held").unlink(missing_ok=True)
        new = self.folder / "hold.new"
        new.write_text(point)
        new.replace(self.folder / "hold")  # never seen half written

    def wait_held(self) -> None:
        """Until the engine stands at the point."""
        held = self.folder / "held"
        wait_until(lambda: held.exists() and held.read_text() == self._point, f"the engine to stop at {self._point}")

    def release(self) -> None:
        """Let the engine go on."""
        (self.folder / "hold").unlink(missing_ok=True)


class ScriptedEngine:
    """An engine on a scripted model in this process, and what it was told and said. Close it at the end."""

    def __init__(
        self,
        model: Path,
        work: Path,
        *replies: Reply,
        cache: CacheOptions | None = None,
        template: str | None = None,
        quantization: KVQuantization | None = None,
        parallel: int = 1,
        **switches: str,
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.model, self.work = model, work
        self.log = work / "calls.jsonl"
        self.gate = GateFolder(work / "gate")
        self.notices: list[str] = []
        script = write_script(work / "script.jsonl", *(replies or ("Yes.",)))
        given = {"call_log": self.log, "script": script, "gate": self.gate.folder, **switches}
        wanted = {f"MLXCHAT_TEST_{name.upper()}": str(value) for name, value in given.items() if value}
        cache = cache or CacheOptions(directory=work / "kv", budget_bytes=1 << 28)
        options = EngineOptions(
            str(model), template, offline=True, cache=cache, kv_quantization=quantization, parallel=parallel
        )
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            self.engine = Engine.start(options, self.notices.append)
        finally:
            _put_back(before)

    def say(self, *replies: Reply) -> None:
        """A new script from the next request on."""
        file = write_script(self.work / "script.jsonl", *replies)

        def change(machinery: Any) -> None:
            tokenizer = machinery.model.tokenizer
            encode = lambda text: list(tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
            machinery.loop._turns._script = Script(file, encode, tokenizer.eos_token_id)

        self.engine.call(change)

    def unscript(self) -> None:
        """From the next request on the model speaks for itself."""
        self.engine.call(lambda machinery: setattr(machinery.loop._turns, "_script", None))

    def chat(self, system: str | None = None) -> Chat:
        return Chat(self.engine, system)

    def check(self) -> None:
        """The store's own books, and the live sequences'."""

        def look(machinery: Any) -> None:
            if machinery.store is not None:
                machinery.store.check()
            machinery.loop.reuse.trie.check()
            for sequence in machinery.loop.sequences.values():
                if sequence.live is not None:
                    sequence.live.check()

        self.engine.call(look)

    def close(self) -> None:
        self.engine.close()


def next_number() -> int:
    """The number of the next request of this process, as gate points and the call log name it."""
    number = next(chat_module._numbers)
    chat_module._numbers = itertools.count(number)
    return number


def options(**sampling: Any) -> RequestOptions:
    return RequestOptions(sampling=SamplingOptions(**sampling))


def ask(chat: Chat, text: str, wanted: RequestOptions | None = None) -> TurnDone:
    """One whole turn that must succeed."""
    return done(list(chat.ask(user(text), wanted or RequestOptions())))


def done(events: list[Event]) -> TurnDone:
    """The last event, which must be the end of a turn that succeeded."""
    last = events[-1]
    assert isinstance(last, TurnDone), last
    return last


def failed(events: list[Event]) -> TurnFailed:
    last = events[-1]
    assert isinstance(last, TurnFailed), last
    return last


def shown(events: list[Event]) -> str:
    """The answer as it was streamed."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def told(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def live_bytes(machinery: Any) -> dict[int, int]:
    """Bytes of KV in memory by sequence number."""
    return {s.number: 0 if s.live is None else s.live.nbytes for s in machinery.loop.sequences.values()}


def _put_back(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
