"""`--json` and `--jsonl`: the objects of docs/json.md, on stdout and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..engine.events import (
    Event,
    Notice,
    PrefillProgress,
    ReasoningDelta,
    StepDone,
    TextDelta,
    ToolCallDone,
    ToolResultDone,
)
from ..engine.messages import ToolCall
from ..engine.stats import RequestStats, total
from ..engine.tools.tool import ToolResult
from ..errors import MlxchatError
from .output import Output
from .streams import Streams
from .turn_result import TurnResult

if TYPE_CHECKING:
    from ..engine.cache_report import CacheReport
    from ..engine.engine import EngineInfo

CHAT, TURNS, EVENT, ERROR = "mlxchat.chat/1", "mlxchat.turns/1", "mlxchat.event/1", "mlxchat.error/1"
BATCH = "mlxchat.batch/1"


class JsonOutput(Output):
    """One object at the end, whatever happens."""

    def __init__(self, streams: Streams, turns: bool) -> None:
        self._streams = streams
        self._turns = turns
        self._model = ""
        self._adapter: str | None = None
        self._session_id: str | None = None
        self._results: list[TurnResult] = []
        self._said: list[str] = []
        self._answered: list[tuple[ToolCall, ToolResult]] = []
        self._cache: dict[str, Any] | None = None

    def session(self, info: EngineInfo, session_id: str | None) -> None:
        """Keep the names of the model and of the session."""
        self._model, self._session_id, self._adapter = info.model, session_id, info.adapter

    def event(self, event: Event) -> None:
        """Keep the text and what tools have done, in case the turn fails; pass notices to stderr."""
        if isinstance(event, TextDelta):
            self._said.append(event.text)
        elif isinstance(event, ToolResultDone):
            self._answered.append((event.call, event.result))
        elif isinstance(event, StepDone):
            self._said.clear()
        elif isinstance(event, Notice):
            self._streams.note(event.text)

    def turn(self, result: TurnResult) -> None:
        """Keep the result."""
        self._results.append(result)
        self._said.clear()
        self._answered.clear()

    def cache(self, report: CacheReport) -> None:
        """Keep it."""
        self._cache = report.to_json()

    def failed(self, error: MlxchatError) -> None:
        """Print the failure, with what was said, what tools have done, and the turns before it."""
        failure = failure_object(TURNS if self._turns else CHAT, error, "".join(self._said))
        if self._answered:
            failure["tool_calls"] = answered_calls(self._answered)
        if self._turns:
            failure["turns"] = [self._object(result) for result in self._results]
        write_json(self._streams, failure)

    def finished(self, exit_code: int) -> None:
        """Print the run."""
        if self._turns:
            whole = turns_object(self._results, self._model, self._session_id)
        else:
            whole = self._object(self._results[0])
        write_json(self._streams, {**whole, "adapter": self._adapter, "cache": self._cache})

    def _object(self, result: TurnResult) -> dict[str, Any]:
        return chat_object(result, self._model, self._session_id)


class JsonlOutput(Output):
    """One object per event, each with the schema and its number, `done` always last."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._seq = 0
        self._turn = 0
        self._said: list[str] = []
        self._requests: list[RequestStats] = []
        self._cache: dict[str, Any] | None = None

    def session(self, info: EngineInfo, session_id: str | None) -> None:
        """Print `session`."""
        self._print(
            "session",
            session_id=session_id,
            model=info.model,
            adapter=info.adapter,
            context_limit=info.context_limit,
        )

    def event(self, event: Event) -> None:
        """Print `prefill`, `reasoning`, `text`, `tool_call` or `tool_result`; pass notices to stderr."""
        if isinstance(event, PrefillProgress):
            self._print("prefill", done=event.done, total=event.total, cached=event.cached)
        elif isinstance(event, ReasoningDelta):
            self._print("reasoning", text=event.text)
        elif isinstance(event, TextDelta):
            self._said.append(event.text)
            self._print("text", text=event.text)
        elif isinstance(event, ToolCallDone):
            self._print("tool_call", tool_call=event.call.to_json())
        elif isinstance(event, ToolResultDone):
            result = {"tool_call_id": event.call.id, "name": event.call.name, "text": event.result.text}
            self._print("tool_result", **result, status=event.result.status)
        elif isinstance(event, StepDone):
            self._said.clear()
        elif isinstance(event, Notice):
            self._streams.note(event.text)

    def turn(self, result: TurnResult) -> None:
        """Print `turn`: the whole of it once more, with its numbers."""
        self._turn += 1
        self._requests += result.requests
        self._said.clear()
        self._print("turn", turn=self._turn, **turn_fields(result))

    def cache(self, report: CacheReport) -> None:
        """Keep it for `done`."""
        self._cache = report.to_json()

    def failed(self, error: MlxchatError) -> None:
        """Print `error` and `done`."""
        self._print("error", error=error_object(error), text="".join(self._said))
        self.finished(error.exit_code)

    def finished(self, exit_code: int) -> None:
        """Print `done`."""
        self._print("done", exit_code=exit_code, turns=self._turn, stats=total(self._requests), cache=self._cache)

    def _print(self, kind: str, **fields: Any) -> None:
        write_json(self._streams, {"schema": EVENT, "seq": self._seq, "type": kind, **fields})
        self._seq += 1


def output_for(streams: Streams, jsonl: bool, turns: bool) -> Output:
    """The output that --jsonl, or else --json, asks for."""
    return JsonlOutput(streams) if jsonl else JsonOutput(streams, turns)


def print_failure(error: MlxchatError, command: str | None, options: list[str]) -> None:
    """Print what a command that never began to work leaves: in its own schema if it has one for failures, else
    `mlxchat.error/1`.
    """
    streams = Streams(verbosity=-1)
    if command in (None, "chat"):
        output_for(streams, jsonl="--jsonl" in options, turns="--turns" in options).failed(error)
    elif command == "replay":
        from .replay_json import ReplayJson, ReplayJsonl

        (ReplayJsonl if "--jsonl" in options else ReplayJson)(streams).failed(error)
    elif command == "batch":
        write_json(streams, failure_object(BATCH, error, ""))
    else:
        write_json(streams, failure_object(ERROR, error, ""))


def chat_object(result: TurnResult, model: str, session_id: str | None = None) -> dict[str, Any]:
    """One turn as `mlxchat.chat/1`."""
    return {"schema": CHAT, "session_id": session_id, "model": model, **turn_fields(result)}


def turns_object(results: list[TurnResult], model: str, session_id: str | None = None) -> dict[str, Any]:
    """Several turns as `mlxchat.turns/1`; its stats are over all requests."""
    turns = [chat_object(result, model, session_id) for result in results]
    requests = [request for result in results for request in result.requests]
    return {"schema": TURNS, "turns": turns, "stats": total(requests)}


def turn_fields(result: TurnResult) -> dict[str, Any]:
    """What a chat object and a `turn` event have in common."""
    stats = total(result.requests)
    used = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
    return {
        "text": result.message.text,
        "reasoning": result.message.reasoning,
        "tool_calls": [
            *answered_calls(result.answered),
            *(call.to_json() for call in result.open_calls),
        ],
        "finish_reason": result.finish_reason,
        "usage": {name: stats.get(name, 0) for name in used},
        "requests": [request.to_json() for request in result.requests],
        "stats": stats,
    }


def answered_calls(answered: list[tuple[ToolCall, ToolResult]]) -> list[dict[str, Any]]:
    """Calls with what came of them."""
    return [{**call.to_json(), "status": result.status, "result": result.text} for call, result in answered]


def failure_object(schema: str, error: MlxchatError, said: str) -> dict[str, Any]:
    """A run that failed, with the partial text."""
    return {"schema": schema, "error": error_object(error), "text": said}


def error_object(error: MlxchatError) -> dict[str, Any]:
    """What went wrong: a stable code, the cause, the help."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def write_json(streams: Streams, value: dict[str, Any]) -> None:
    """`value` on one line of stdout, in escapes where the stream's encoding lacks a character."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        line.encode(streams.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(value, allow_nan=False)
    streams.write(f"{line}\n")
