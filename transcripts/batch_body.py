"""The body of a batch request: messages and options out of a chat completion, and nothing passed over in silence.

A field either does what it says, or is named as ignored because it changes no answer, or is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from ..engine.answer_schema import checked_schema
from ..engine.messages import Message
from ..engine.options import RequestOptions, ThinkingOptions
from ..errors import DataError, UsageError
from .formats.chat_messages import ROLES, chat_messages
from .formats.fields import Object, tools_of

IGNORED = frozenset(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "verbosity", "reasoning_effort", "stream_options", "parallel_tool_calls"),
    )
)
"""Fields that have no meaning here. That they were there is said once."""

_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stream": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
}
"""Fields that may be there with these values only: those that change nothing."""

_READ = frozenset(
    (
        *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p"),
        *("seed", "stop", "tools", "tool_choice", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("chat_template_kwargs", "response_format"),
    )
)
_PENALTIES = {"presence_penalty": -math.inf, "frequency_penalty": -math.inf, "repetition_penalty": 0}
"""Their least values."""
_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "parts")


class BadRequest(DataError):
    """A request that can't be run as it says. `param` is the field, `reason` OpenAI's name for the kind of fault."""

    def __init__(self, message: str, param: str | None = None, reason: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.reason = reason


@dataclass(frozen=True)
class Asked:
    """What a body asks for. `ignored` are the fields that have no meaning here; `model` the one it names, if any."""

    messages: tuple[Message, ...]
    options: RequestOptions
    model: str | None
    ignored: tuple[str, ...]


def read_body(body: Object, defaults: RequestOptions) -> Asked:
    """The request in `body`; what it doesn't say is as in `defaults`. Raises BadRequest."""
    given = {name: value for name, value in body.items() if value is not None}
    for name in given:
        if name not in _READ and name not in IGNORED and name not in _ONLY:
            raise BadRequest(f"{name} is not a field that is known here", name, "unknown_parameter")
    for name, values in _ONLY.items():
        if name in given and not any(type(given[name]) is type(one) and given[name] == one for one in values):
            raise BadRequest(f"{name} is not supported, but for the value {values[0]}", name, "unsupported_value")
    model = given.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequest("model takes a text", "model")
    messages, unread = _messages(given.get("messages"))
    ignored = sorted({*(name for name in given if name in IGNORED), *unread})
    options = replace(
        defaults,
        sampling=_sampling(given, defaults),
        thinking=_thinking(given, defaults),
        tools=_tools(given),
        schema=_schema(given),
    )
    return Asked(messages, options, model, tuple(ignored))


# -- messages ------------------------------------------------------------------------------------------------------


def _messages(value: Any) -> tuple[tuple[Message, ...], set[str]]:
    """The messages, and their fields that have no meaning here."""
    if not isinstance(value, list) or not value:
        raise BadRequest("messages takes a list with at least one message", "messages")
    found: list[Message] = []
    unread: set[str] = set()
    for at, raw in enumerate(value):
        where = f"messages[{at}]"
        _check_message(raw, where)
        for read in chat_messages(raw):
            _check_parts(read.extra.get("parts") or [], where)
            unread |= {f"messages[].{name}" for name, said in read.extra.items() if _is_unread(name, said)}
            found.append(read.message)
    return tuple(found), unread


def _is_unread(name: str, said: Any) -> bool:
    return name not in _MESSAGE_FIELDS and said not in (None, [], {})


def _check_message(raw: Any, where: str) -> None:
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        raise BadRequest(f"{where} is no message: it needs a role and content", where)
    if raw["role"] not in ROLES:
        raise BadRequest(f"{where} has an unknown role", f"{where}.role")
    content = raw.get("content")
    calls = raw.get("tool_calls") or raw.get("function_call")
    if content is None and not (raw["role"] == "assistant" and calls):
        raise BadRequest(f"{where} has no content", f"{where}.content")
    if content is not None and not isinstance(content, str | list):
        raise BadRequest(f"{where}.content takes a text or a list of parts", f"{where}.content")
    calls = raw.get("tool_calls") or []
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"{where}.tool_calls holds what is no call of a function", f"{where}.tool_calls")


def _check_parts(others: Any, where: str) -> None:
    for part in others if isinstance(others, list) else [others]:
        kind = part.get("type") if isinstance(part, dict) else None
        raise BadRequest(f"{where} has a part of an unsupported kind: {str(kind)[:40]}", where, "unsupported_value")


# -- options -------------------------------------------------------------------------------------------------------


def _sampling(given: Object, defaults: RequestOptions) -> Any:
    sampling = defaults.sampling
    changes: Object = {
        "temp": _number(given, "temperature", 0, math.inf),
        "top_p": _number(given, "top_p", 0, 1),
        "min_p": _number(given, "min_p", 0, 1),
        "top_k": _whole(given, "top_k", 0),
        "seed": _whole(given, "seed", None),
        "max_tokens": _most_tokens(given),
    }
    penalties = {name: _number(given, name, least, math.inf) for name, least in _PENALTIES.items()}
    extra = {name: value for name, value in penalties.items() if value is not None}  # 0: off, whatever is advised
    kept = {name: value for name, value in changes.items() if value is not None}
    return replace(sampling, stop=_stops(given.get("stop")), extra={**sampling.extra, **extra}, **kept)


def _most_tokens(given: Object) -> int | None:
    old, new = _whole(given, "max_tokens", 1), _whole(given, "max_completion_tokens", 1)
    if old is not None and new is not None and old != new:
        raise BadRequest("max_tokens and max_completion_tokens say different things", "max_tokens")
    return new if new is not None else old


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise BadRequest("stop takes a text, or a list of them", "stop")
    return tuple(stops)


def _thinking(given: Object, defaults: RequestOptions) -> ThinkingOptions:
    """`chat_template_kwargs` as local servers take it, with the one setting that has a meaning here."""
    settings = given.get("chat_template_kwargs", {})
    if not isinstance(settings, dict) or set(settings) - {"enable_thinking"}:
        raise BadRequest("chat_template_kwargs takes enable_thinking only", "chat_template_kwargs", "unsupported_value")
    enabled = settings.get("enable_thinking")
    if enabled is None:
        return defaults.thinking
    if not isinstance(enabled, bool):
        raise BadRequest("enable_thinking takes true or false", "chat_template_kwargs")
    return replace(defaults.thinking, enabled=enabled)


def _tools(given: Object) -> tuple[Object, ...]:
    tools, choice = given.get("tools", []), given.get("tool_choice", "auto")
    if not isinstance(tools, list) or not all(_is_function(tool) for tool in tools):
        raise BadRequest("tools takes a list of functions with a name each", "tools")
    if choice not in ("auto", "none"):
        raise BadRequest("tool_choice takes auto or none", "tool_choice", "unsupported_value")
    return () if choice == "none" else tools_of(tools)


def _schema(given: Object) -> str | None:
    """The text of the JSON schema that the answer is to follow; None for an answer in plain text."""
    wanted = given.get("response_format", {"type": "text"})
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        schema: Any = {"type": "object"}
    elif kind == "json_schema" and isinstance(wanted.get("json_schema"), dict):
        schema = wanted["json_schema"].get("schema")
    else:
        raise BadRequest("response_format takes text, json_object or json_schema", "response_format")
    if given.get("tools") and given.get("tool_choice") != "none":
        raise BadRequest("response_format leaves no way to call tools", "response_format", "unsupported_value")
    try:
        return checked_schema(json.dumps(schema))
    except UsageError as error:
        raise BadRequest(error.message.replace("--schema", "the schema"), "response_format") from error


def _is_function(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _number(given: Object, name: str, least: float, most: float) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} takes a number", name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not least <= number <= most:
        raise BadRequest(f"{name} takes a number{_span(least, most)}", name)
    return number


def _span(least: float, most: float) -> str:
    if math.isfinite(most):
        return f" from {least:g} to {most:g}"
    return f", {least:g} or more" if math.isfinite(least) else ""


def _whole(given: Object, name: str, least: int | None) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise BadRequest(f"{name} takes a whole number{'' if least is None else f', {least} or more'}", name)
    return value
