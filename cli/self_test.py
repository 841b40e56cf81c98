"""`mlxchat doctor --self-test`: is the KV cache right and quick on this machine? A report to attach to an issue."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from pathlib import Path
from typing import Any

from ..engine.file_errors import unwritable
from .streams import Streams

REPORT = "mlxchat-self-test.json"


def run_self_test(streams: Streams, versions: dict[str, str], out: Path) -> dict[str, Any]:
    """Run every family; the report, which is also in `out`. It holds no path, no name and no text of anybody's.

    Raises OutputError if the report can't be written.
    """
    from ..engine import backend
    from ..engine.folders import cache_dir

    line = backend.describe()[0]
    from ..engine.self_test import FAMILIES  # brings MLX: the BLAS has been chosen above

    cache_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="self-test-") as folder:
        families = {name: _family(name, Path(folder), streams) for name in FAMILIES}
    report = {
        "schema": "mlxchat.self-test/1",
        "passed": all(family["passed"] for family in families.values()),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "backend": re.sub(r"\S*/", "", line),  # a library by its name: where it lies is nobody's business
        "versions": versions,
        "families": families,
    }
    try:
        out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(out, error, "name another file with --out") from error
    return report


def _family(name: str, folder: Path, streams: Streams) -> dict[str, Any]:
    from ..engine.self_test import exactness, rewind

    streams.transient(f"trying {name} …")
    try:
        cells = list(exactness(name, folder))
        turn = rewind(name, folder)
    except Exception as error:  # one family that can't run at all leaves the others their results
        return {"passed": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        streams.transient("")
    passed = all(cell.right for cell in cells) and turn.cached_tokens > 0
    return {"passed": passed, "cells": [cell.to_json() for cell in cells], "rewind": turn.to_json()}


def table(report: dict[str, Any]) -> list[str]:
    """The report in lines for people."""
    lines = [f"{'family':14}{'restores':>10}{'bit-equal':>11}{'largest difference':>20}{'first token':>22}"]
    for name, family in report["families"].items():
        if "error" in family:
            lines.append(f"{name:14}{family['error']}")
            continue
        cells, turn = family["cells"], family["rewind"]
        right, equal = sum(cell["right"] for cell in cells), sum(cell["bit_equal"] for cell in cells)
        largest = max((cell["largest_difference"] or 0.0) for cell in cells)
        times = f"{turn['ttft_ms']:.0f} of {turn['uncached_ttft_ms']:.0f} ms"
        lines.append(f"{name:14}{f'{right}/{len(cells)}':>10}{f'{equal}/{len(cells)}':>11}{largest:>20.2g}{times:>22}")
    return lines
