"""What a request to each of the compared programs gives: mlxchat's engine in this process, servers over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mlxchat.engine import backend

backend.prepare()  # before MLX is imported, or it keeps the slow BLAS

import mlx.core as mx
from mlxchat.engine.chat import next_number
from mlxchat.engine.engine import Engine
from mlxchat.engine.events import ReasoningDelta, TextDelta, TurnDone, TurnFailed
from mlxchat.engine.messages import Message, assistant, system, tool_result, user
from mlxchat.engine.options import CacheOptions, EngineOptions, RequestOptions, SamplingOptions
from mlxchat.engine.request import Request
from peer_work import Ask, Messages

START_S = 180.0
PROGRAM = Path(__file__).with_name("peer_server.py")
MODEL = "MODEL"
"""Stands for the model's folder in a server's command."""
MAKERS = {"system": system, "user": user, "assistant": assistant, "tool": tool_result}


@dataclass(frozen=True)
class Answer:
    """`memory`: what MLX holds beside the weights; `disk`: what lies in files; bytes, when the request has ended."""

    text: str
    prompt: int
    cached: int
    ttft_s: float
    memory: int
    disk: int


class Client(Protocol):
    """One of the compared."""

    name: str
    process: int

    def ask(self, ask: Ask) -> Answer:
        """Run the request to its end."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def said(messages: Messages) -> tuple[Message, ...]:
    return tuple(MAKERS[one["role"]](one["content"]) for one in messages)


class Own:
    """mlxchat, without work ahead: each request comes the moment the last has ended.

    Each conversation leaves memory as its answer ends (`--cache-park 0s`), and is restored from the file.
    """

    name = "mlxchat"
    process = os.getpid()

    def __init__(self, model: Path, template: Path, work: Path) -> None:
        cache = CacheOptions(directory=work / "kv", park=0.0)
        self.engine = Engine.start(EngineOptions(str(model), str(template), cache=cache), print)
        mx.clear_cache()
        self.weights = mx.get_active_memory()

    def ids(self, messages: Messages) -> list[int]:
        """The prompt, which is the same in all of them."""
        return self.engine.call(lambda made: made.renderer.render(said(messages)).ids.tolist())  # type: ignore[return-value]

    def ask(self, ask: Ask) -> Answer:
        options = RequestOptions(SamplingOptions(temp=0.0, max_tokens=ask.max_tokens))
        request = Request(next_number(), ask.conversation, said(ask.messages), options)
        text, first, started = "", 0.0, time.perf_counter()
        self.engine.submit(request)
        while True:
            event = request.events.get()
            if isinstance(event, TextDelta | ReasoningDelta):
                first = first or time.perf_counter() - started
                text += event.text
            elif isinstance(event, TurnFailed):
                raise event.error
            elif isinstance(event, TurnDone):
                break
        held = mx.get_active_memory() + mx.get_cache_memory() - self.weights
        store = self.engine.cache_report().store
        assert store is not None
        stats = event.stats
        return Answer(text, stats.prompt_tokens, stats.cached_tokens, first, held, store.file_bytes)

    def close(self) -> None:
        self.engine.close()


class Server:
    """Another project's server, in a process of its own."""

    def __init__(self, name: str, python: str, command: list[str], model: Path, work: Path, weights: int) -> None:
        self.name = name
        self._model, self._work, self._weights = str(model), work, weights
        self._port = _free_port()
        environment = os.environ | {"APC_ENABLED": "1", "APC_DISK_PATH": str(work), "HF_HUB_OFFLINE": "1"}
        words = [self._model if word == MODEL else word for word in command]
        self._process = subprocess.Popen(
            [python, str(PROGRAM), *words, "--host", "127.0.0.1", "--port", str(self._port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self.process = self._process.pid
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} did not start")

    def ask(self, ask: Ask) -> Answer:
        body = {
            "model": self._model,
            "messages": ask.messages,
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=900)
        text, first, usage, started = "", 0.0, {}, time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{self.name}: {reply.status} {reply.read()[:300]!r}")
        for raw in reply:
            event = _event(raw)
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                said = choice.get("delta", {})
                part = (said.get("content") or "") + (said.get("reasoning") or said.get("reasoning_content") or "")
                if part:
                    first = first or time.perf_counter() - started
                    text += part
        connection.close()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Answer(text, usage["prompt_tokens"], cached, first, self._memory(), _size(self._work))

    def _memory(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        held = json.loads(self._process.stdout.readline())
        return int(held["active"] + held["cache"]) - self._weights

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _event(raw: bytes) -> dict[str, Any]:
    line = raw.decode().strip()
    if not line.startswith("data:") or line.endswith("[DONE]"):
        return {}
    return dict(json.loads(line[5:]))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
