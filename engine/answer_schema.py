"""The JSON schema that an answer must follow: checked before a model is loaded, and made a grammar by llguidance."""

from __future__ import annotations

import functools
import json
from typing import Any

from ..errors import UsageError

_HINT = 'it is a JSON Schema, for example {"type": "object", "properties": {"name": {"type": "string"}}}'
_WHITESPACE = {"whitespace_pattern": "[ \\n]{0,12}"}
"""Between the parts of an answer: enough for any indentation, too little for a small model to get lost in."""


@functools.lru_cache(maxsize=8)
def checked_schema(text: str) -> str:
    """`text`, if it is a schema that some answer can follow. Raises UsageError with the first reason why not."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--schema is not JSON: {error}", _HINT) from error
    if not isinstance(schema, dict):
        raise UsageError("--schema takes a JSON object", _HINT)
    from llguidance import LLMatcher

    try:
        grammar = grammar_of(text)
    except ValueError as error:  # what Python reads as JSON and others don't: Infinity, 1e400
        raise UsageError(f"--schema can't be used: {error}", _HINT) from error
    broken, said = LLMatcher.validate_grammar_with_warnings(grammar)
    if broken:
        cause = " ".join(said[0].split())[:200] if said else "it can't be followed"
        raise UsageError(f"--schema can't be used: {cause[:1].lower()}{cause[1:]}", _HINT)
    if not _can_end(schema, schema, frozenset()):
        raise UsageError(
            "--schema can't be used: its answers would never end", "let a part that it repeats be left out"
        )
    return text


def grammar_of(text: str) -> str:
    """llguidance's grammar of a schema."""
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(text, overrides=_WHITESPACE)  # type: ignore[arg-type]  # a TypedDict


def _can_end(schema: Any, root: Any, within: frozenset[str]) -> bool:
    """Whether something finite follows `schema`, which is reached through the references `within`.

    llguidance takes a schema that requires itself, and its answers go on until the context is full.
    """
    if not isinstance(schema, dict):
        return schema is not False
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = _target(reference, root)
        if reference in within or not _can_end(target, root, within | {reference}):
            return False
    for word, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        parts = schema.get(word)
        if isinstance(parts, list) and not enough(_can_end(part, root, within) for part in parts):
            return False
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return all(_can_end(properties.get(name), root, within) for name in schema.get("required", []))
    if kind == "array" and schema.get("minItems", 0) > 0:
        return _can_end(schema.get("items"), root, within)
    return True


def _target(reference: str, root: Any) -> Any:
    """What a reference within the schema points to; anything goes where it points elsewhere."""
    found = root
    for name in filter(None, reference.lstrip("#").split("/")):
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
