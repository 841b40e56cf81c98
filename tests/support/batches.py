"""Batch files and their answers, and whether each request was answered exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlxchat.transcripts.batch_lines import URL, BatchLine, scan

SYSTEM = "You know the window, the layer, the block and the prefix. " * 12


def request(custom_id: str, text: str = "Well?", system: str | None = None, **body: Any) -> dict[str, Any]:
    """One line of a batch file; `body` adds fields, or replaces them."""
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    whole = {"messages": messages, "max_tokens": 4, "temperature": 0} | body
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": whole}


def write(file: Path, lines: Iterable[dict[str, Any] | str | bytes]) -> Path:
    """A file of these lines: objects as JSON, texts and bytes as they are."""
    raw = []
    for line in lines:
        text = line if isinstance(line, str | bytes) else json.dumps(line)
        raw.append(text.encode() if isinstance(text, str) else text)
    file.write_bytes(b"".join(line + b"\n" for line in raw))
    return file


def scanned(file: Path) -> list[BatchLine]:
    with file.open("rb") as stream:
        return list(scan(stream))


def answers(file: Path) -> list[dict[str, Any]]:
    """The lines of an answer file, each of which has to be whole."""
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def good(lines: Iterable[dict[str, Any]]) -> list[str]:
    """The custom_ids that were answered, sorted."""
    return sorted(line["custom_id"] for line in lines if line["response"] and line["response"]["status_code"] == 200)


def not_once(lines: Iterable[dict[str, Any]], wanted: Iterable[str]) -> dict[str, int]:
    """How often each request was answered that was not answered exactly once."""
    counts = Counter(good(lines))
    return {name: counts[name] for name in {*wanted, *counts} if counts[name] != 1}
