"""`mlxchat cache stat`: where KV caches go, how large they may grow, and what was kept. Loads no model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.sanitize import sanitize
from .ages import age_text
from .json_output import write_json
from .shared_options import JsonReport
from .stats_line import size
from .streams import Streams

STAT = "mlxchat.cache-stat/1"

app = typer.Typer(
    name="cache",
    help="Show where KV caches are kept, how large they are and may be.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _cache() -> None:
    """Show where KV caches are kept, how large they are and may be."""


@app.command("stat")
def stat_command(
    cache_dir: Annotated[
        str | None, typer.Option("--cache-dir", help="A folder given to chats.", metavar="DIR")
    ] = None,
    json_output: JsonReport = False,
) -> None:
    """Show the folders of KV caches, their limits and free space, and what --cache-persist has kept."""
    streams, found = Streams(), examine(None if cache_dir is None else Path(cache_dir).expanduser())
    if json_output:
        write_json(streams, {"schema": STAT, **found})
        return
    for line in _lines(found):
        streams.write(sanitize(line) + "\n")


def examine(cache_dir: Path | None) -> dict[str, Any]:
    """The figures: bytes, and seconds since 1970. A folder that can't be looked at has null for what isn't known."""
    from ..cache.budget import default_queue_bytes
    from ..engine import folders

    usual = cache_dir or folders.cache_dir()
    kept_dirs = [cache_dir] if cache_dir is not None else folders.kept_dirs()
    return {
        "scratch": _folder(usual),
        "kept": [{**_folder(directory), "files": _kept(directory)} for directory in kept_dirs],
        "queue_limit_bytes": default_queue_bytes(),
    }


def _folder(directory: Path) -> dict[str, Any]:
    import psutil

    from ..cache.budget import default_budget, existing, is_memory_backed

    try:
        free, budget = psutil.disk_usage(str(existing(directory))).free, default_budget(directory)
    except OSError:
        free = budget = None
    return {
        "path": str(directory),
        "exists": directory.is_dir(),
        "memory_backed": is_memory_backed(directory),
        "free_bytes": free,
        "default_budget_bytes": budget,
    }


def _kept(directory: Path) -> list[dict[str, Any]]:
    from ..cache.kept_folder import describe, kept_files

    return [
        {
            "path": str(info.path),
            "model": info.label or None,
            "bytes": info.nbytes,
            "records": info.records,
            "used_at": info.used_at,
            "open": info.is_open,
        }
        for info in map(describe, kept_files(directory))
    ]


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"scratch  {_place(found['scratch'])}"]
    for folder in found["kept"]:
        lines.append(f"kept     {_place(folder)}")
        for file in folder["files"]:
            age = age_text(time.time() - file["used_at"])
            state = "in use" if file["open"] else f"used {age} ago" if age != "now" else "used just now"
            lines.append(f"         {size(file['bytes'])}, {file['records']:,} records, {file['model']}, {state}")
        if not folder["files"]:
            lines.append("         nothing; --cache-persist keeps a chat's KV cache")
    lines.append(f"queue    at most {size(found['queue_limit_bytes'])} of memory for records on their way to the disk")
    return lines


def _place(folder: dict[str, Any]) -> str:
    if folder["free_bytes"] is None:
        return f"{folder['path']} (can't be looked at)"
    kind = ", in memory" if folder["memory_backed"] else ""
    limit = size(folder["default_budget_bytes"])
    return f"{folder['path']} ({size(folder['free_bytes'])} free{kind}; at most {limit} without --cache-bytes)"
