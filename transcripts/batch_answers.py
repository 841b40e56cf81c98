"""The lines of an answer file in OpenAI's batch layout: a chat completion, a refusal, or why a line was no request."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from ..engine.events import TurnDone
from ..engine.messages import Message, ToolCall
from ..engine.stats import FinishReason, RequestStats
from ..errors import ContextExceeded, DataError, InputError, MlxchatError, ModelUnsupported, UsageError
from .batch_body import BadRequest
from .batch_lines import BatchLine
from .formats.content import written_arguments

Object = dict[str, Any]

OK, BAD_REQUEST, SERVER_ERROR = 200, 400, 500
_OURS_TO_MEND = (DataError, InputError, ModelUnsupported, UsageError)
_FINISH: dict[FinishReason, str] = {"stop": "stop", "length": "length"}


def answered(line: BatchLine, done: TurnDone, model: str) -> Object:
    """The line of a request that was answered."""
    message = done.message
    reason = "tool_calls" if message.tool_calls else _FINISH.get(done.finish_reason, "stop")
    body = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": _message(message), "logprobs": None, "finish_reason": reason}],
        "usage": _usage(done.stats),
    }
    return _line(line, _response(OK, body), None)


def refused(line: BatchLine, error: MlxchatError) -> Object:
    """The line of a request that failed: as the API answers one that is at fault itself, or that it fails at."""
    own = isinstance(error, _OURS_TO_MEND)
    told: Object = {"message": error.message, "type": "invalid_request_error" if own else "server_error"}
    if isinstance(error, ContextExceeded):
        told |= {"param": "messages", "code": "context_length_exceeded"}
    elif isinstance(error, BadRequest):
        told |= {"param": error.param, "code": error.reason}
    else:
        told |= {"param": None, "code": error.code}
    return _line(line, _response(BAD_REQUEST if own else SERVER_ERROR, {"error": told}), None)


def unusable(line: BatchLine) -> Object:
    """The line for one that is no request."""
    assert line.fault is not None
    return _line(line, None, {"code": line.fault.code, "message": line.fault.message})


def failure_of(value: Object) -> tuple[str, str] | None:
    """(code, message) of a line that is no answer, None of one that is."""
    response = value["response"]
    if response is None:
        return value["error"]["code"], value["error"]["message"]
    if response["status_code"] == OK:
        return None
    return str(response["body"]["error"]["code"]), response["body"]["error"]["message"]


def _line(line: BatchLine, response: Object | None, error: Object | None) -> Object:
    """`id` stands first: by it a line that was cut off is known as one of these."""
    return {"id": line.id, "custom_id": line.custom_id, "response": response, "error": error}


def _response(status: int, body: Object) -> Object:
    return {"status_code": status, "request_id": f"req_{uuid.uuid4().hex}", "body": body}


def _message(message: Message) -> Object:
    text = message.text
    out: Object = {"role": "assistant", "content": None if message.tool_calls and not text else text, "refusal": None}
    if message.reasoning is not None:
        out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [_call(call) for call in message.tool_calls]
    return out


def _call(call: ToolCall) -> Object:
    written = written_arguments(call)
    arguments = json.dumps(call.arguments, ensure_ascii=False) if written is None else written
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(stats: RequestStats) -> Object:
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens,
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": stats.reasoning_tokens},
    }
