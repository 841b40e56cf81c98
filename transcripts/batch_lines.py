"""The lines of a batch file in OpenAI's layout: which requests there are, and which lines can't be any.

A line is known by two names. `custom_id` is the user's, and what answers are found by. `id` is made from the line's
bytes, so that a line without a usable custom_id is known again in a later run, and one that was changed is noticed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from .json_lines import LONGEST_LINE, NotJson, load

Object = dict[str, Any]

URL = "/v1/chat/completions"
ID_PREFIX = "batch_req_"
_FIELDS = ("custom_id", "method", "url", "body")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class LineFault:
    """Why a line is no request, by the codes of OpenAI's own check of batch files."""

    code: str
    message: str


@dataclass(frozen=True)
class BatchLine:
    """One line that isn't blank.

    number, offset   1-based, and in bytes from the file's begin
    fault            set if it is no request; custom_id is None where it has none
    unknown          its fields that mean nothing here
    """

    number: int
    offset: int
    id: str
    custom_id: str | None
    fault: LineFault | None = None
    unknown: tuple[str, ...] = ()


def scan(stream: BinaryIO) -> Iterator[BatchLine]:
    """Every line, in order. Of lines with one custom_id the first is the request, the others are at fault."""
    seen: dict[str, int] = {}
    times: Counter[bytes] = Counter()
    for number, offset, raw, digest in _lines(stream):
        times[digest] += 1
        name = hashlib.sha256(digest + str(times[digest]).encode()).hexdigest()
        line = _line(number, offset, f"{ID_PREFIX}{name[:24]}", raw)
        if line.fault is None and line.custom_id is not None:
            first = seen.setdefault(line.custom_id, number)
            if first != number:
                fault = LineFault("duplicate_custom_id", f"line {first} has this custom_id already")
                line = BatchLine(line.number, line.offset, line.id, line.custom_id, fault)
        yield line


def body_at(stream: BinaryIO, line: BatchLine) -> Object:
    """The body of a line that `scan` found no fault in. Raises NotJson if the file has changed since."""
    stream.seek(line.offset)
    value = load(stream.readline(LONGEST_LINE + 1))
    body = value.get("body") if isinstance(value, dict) and value.get("custom_id") == line.custom_id else None
    if not isinstance(body, dict):
        raise NotJson("the file has changed since it was read first")
    return body


def _lines(stream: BinaryIO) -> Iterator[tuple[int, int, bytes | None, bytes]]:
    """(number, offset, bytes, their digest) of those that aren't blank; no bytes of one that is too long."""
    number, offset = 0, 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        start, offset = offset, offset + len(raw)
        if len(raw) <= LONGEST_LINE:
            if raw.strip():
                yield number, start, raw, hashlib.sha256(raw.strip()).digest()
            continue
        digest = hashlib.sha256(raw)
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(_CHUNK)
            digest.update(raw)
            offset += len(raw)
        yield number, start, None, digest.digest()


def _line(number: int, offset: int, name: str, raw: bytes | None) -> BatchLine:
    def faulty(code: str, message: str, custom_id: str | None = None) -> BatchLine:
        return BatchLine(number, offset, name, custom_id, LineFault(code, message))

    if raw is None:
        return faulty("invalid_json_line", f"it is longer than {LONGEST_LINE >> 20} MB")
    try:
        value = load(raw)
    except NotJson as error:
        return faulty("invalid_json_line", error.why)
    if not isinstance(value, dict):
        return faulty("invalid_json_line", "it is no JSON object")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        return faulty("missing_required_parameter", "custom_id has to be a text")
    if value.get("method") != "POST":
        return faulty("invalid_method", "method has to be POST", custom_id)
    if value.get("url") != URL:
        return faulty("invalid_url", f"url has to be {URL}", custom_id)
    if not isinstance(value.get("body"), dict):
        return faulty("missing_required_parameter", "body has to be an object", custom_id)
    return BatchLine(number, offset, name, custom_id, unknown=tuple(sorted(set(value) - set(_FIELDS))))
