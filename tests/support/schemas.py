"""The JSON schemas that the program ships, and a check against the one that a value names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import mlxchat.cli

SCHEMAS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(mlxchat.cli.__file__).parent / "schemas").glob("*.json")
}


def validate(value: dict[str, Any]) -> dict[str, Any]:
    """`value`, if it is what its own `schema` field says."""
    schema = SCHEMAS[value["schema"].removeprefix("mlxchat.").replace("/", "-")]
    jsonschema.Draft202012Validator(schema).validate(value)
    return value
