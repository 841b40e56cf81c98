"""What an answer file holds already: which requests have an answer, and where its whole lines end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError
from .batch_answers import OK
from .batch_lines import ID_PREFIX

Object = dict[str, Any]

_BEGINS = json.dumps({"id": ID_PREFIX})[:-2].encode()


@dataclass
class Standing:
    """What the file holds already.

    requests   custom_id to the line's id, of requests; lines: the ids of all lines
    failed     ids of lines that are no answers; trimmed: bytes of a line that was cut off
    """

    requests: dict[str, str] = field(default_factory=dict)
    lines: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    trimmed: int = 0

    def add(self, value: Object) -> None:
        """Note a line."""
        name, custom_id, response = value["id"], value["custom_id"], value["response"]
        self.lines.add(name)
        if response is not None and custom_id is not None:
            self.requests[custom_id] = name
        if response is None or response.get("status_code") != OK:
            self.failed.add(name)


def read_standing(descriptor: int, path: Path) -> tuple[Standing, int]:
    """What the file holds, and how long its whole lines are. Raises DataError for lines that aren't ours."""
    standing, end = Standing(), 0
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        for raw, last in _with_last(file):
            value = answer_in(raw)
            if value is None:
                torn = raw.rstrip(b"\0\n")
                if last and (torn.startswith(_BEGINS) or _BEGINS.startswith(torn)):
                    standing.trimmed = len(raw)
                    break
                raise DataError(f"{path} holds something else than answers of a batch", "name another file with --out")
            standing.add(value)
            end += len(raw)
    return standing, end


def _with_last(lines: Any) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is the last one."""
    before: bytes | None = None
    for line in lines:
        if before is not None:
            yield before, False
        before = line
    if before is not None:
        yield before, True


def answer_in(raw: bytes) -> Object | None:
    """The line if it is a whole one of an answer file, else None."""
    try:
        value = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not {"id", "custom_id", "response"} <= set(value):
        return None
    fits = isinstance(value["id"], str) and isinstance(value["custom_id"], str | None)
    fits = fits and isinstance(value["response"], dict | None)
    return value if fits else None
