"""Reading JSON of unknown shape: every function takes any value and never raises."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from ..model import Usage

Object = dict[str, Any]
_TOO_MANY = 1 << 53
_LATEST_SECONDS = 1e11
"""Times beyond it are milliseconds."""


def obj(value: Any) -> Object:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def array(value: Any) -> list[Any]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[Object]:
    """The objects in an array, in order."""
    return [item for item in array(value) if isinstance(item, dict)]


def text(value: Any) -> str | None:
    """`value` if it is a string that isn't empty."""
    return value if isinstance(value, str) and value else None


def label(value: Any) -> str | None:
    """A name or id, which some formats write as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(value)


def whole(value: Any) -> int | None:
    """A count: a number that is not negative and not absurd, rounded down."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _TOO_MANY else None


def first_text(*values: Any) -> str | None:
    """The first of `values` that is a string with something in it."""
    return next((value for value in values if isinstance(value, str) and value), None)


def as_words(value: Any) -> str:
    """Any value as text: strings as they are, nothing for null, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def from_json(value: Any) -> Any:
    """`value`, or what it holds if it is a string of JSON; None if it is a string of anything else."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def without(value: Object, *names: str) -> Object:
    """The fields of `value` that aren't among `names`: what a reader did not use, and keeps."""
    return {name: inner for name, inner in value.items() if name not in names}


def tools_of(value: Any) -> tuple[Object, ...]:
    """Tool schemas in chat form, from an array or a string of JSON, whichever of the common spellings they have."""
    return tuple(_tool(tool) for tool in objects(from_json(value)))


def _tool(tool: Object) -> Object:
    if isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return tool
    parameters = next((tool[k] for k in ("parameters", "input_schema", "inputSchema") if k in tool), None)
    function = {"name": tool["name"], "description": tool.get("description") or ""}
    return {"type": "function", "function": function if parameters is None else {**function, "parameters": parameters}}


def usage_of(value: Any) -> Usage | None:
    """Token counts in any of the providers' spellings; prompt tokens always with the cached ones among them."""
    usage = obj(value)
    if not usage:
        return None
    details = obj(usage.get("prompt_tokens_details")) or obj(usage.get("input_tokens_details"))
    spent = obj(usage.get("completion_tokens_details")) or obj(usage.get("output_tokens_details"))
    return some_usage(
        prompt=_first_whole(usage, "prompt_tokens", "input_tokens", "promptTokens"),
        cached=_first_whole({**details, **usage}, "cached_tokens", "cached_input_tokens", "cachedTokens"),
        completion=_first_whole(usage, "completion_tokens", "output_tokens", "completionTokens"),
        reasoning=_first_whole({**spent, **usage}, "reasoning_tokens", "reasoning_output_tokens", "reasoningTokens"),
    )


def some_usage(
    prompt: int | None = None, cached: int | None = None, completion: int | None = None, reasoning: int | None = None
) -> Usage | None:
    """A Usage, or None if nothing was recorded."""
    usage = Usage(prompt, cached, completion, reasoning)
    return None if usage == Usage() else usage


def _first_whole(value: Object, *names: str) -> int | None:
    return next((found for name in names if (found := whole(value.get(name))) is not None), None)


def time_of(value: Any) -> str | None:
    """A time as ISO 8601 text: as it is, or made from seconds or milliseconds since 1970."""
    if whole(value) is None:
        return text(value)
    milliseconds = value if value > _LATEST_SECONDS else value * 1000
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except (ValueError, OverflowError):
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
