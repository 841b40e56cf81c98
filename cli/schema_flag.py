"""`--schema`: the JSON schema that an answer must follow, typed out or in a file."""

from __future__ import annotations

from ..engine.answer_schema import checked_schema
from ..errors import UsageError
from .input_sources import read_text


def schema_text(given: str | None) -> str | None:
    """The schema's text, checked; what begins with a brace is one, anything else names a file.

    Raises InputError for a file that can't be read, UsageError for what no answer can follow.
    """
    if given is None:
        return None
    if not given.strip():
        raise UsageError("--schema takes a file, or a JSON schema", "for example --schema person.json")
    return checked_schema(given if given.lstrip().startswith("{") else read_text(given))
