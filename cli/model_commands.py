"""`mlxchat models pull|list|info|rm`: what is on this machine, how more of it gets here, and how it goes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .completions import model_names
from .shared_options import JsonReport
from .text_table import aligned

if TYPE_CHECKING:
    from ..engine.catalog import ModelInfo

app = typer.Typer(
    name="models", help="List, describe, fetch and remove models.", no_args_is_help=True, rich_markup_mode=None
)

Offline = Annotated[bool, typer.Option("--offline", help="Never connect to anything.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Download without asking.")]


@app.command("list")
def list_command(json_output: JsonReport = False, offline: Offline = False) -> None:
    """Show the models on this machine. Loads nothing and never connects, --offline or not."""
    from ..engine.aliases import EMBEDDED, size_text
    from ..engine.catalog import list_models

    found = list_models()
    absent = [model for alias, model in EMBEDDED.items() if alias not in {entry.name for entry in found}]
    if json_output:
        available = [{"name": m.alias, "label": m.label, "download_bytes": m.download_bytes} for m in absent]
        models = [entry.to_json() for entry in found]
        _print_json({"schema": "mlxchat.models/1", "models": models, "available": available})
        return
    rows: list[tuple[str, ...]] = [("NAME", "KIND", "WEIGHTS", "SIZE", "CONTEXT", "NOTES")]
    rows += [_row(entry, size_text(entry.disk_bytes)) for entry in found]
    rows += [
        (m.alias, "", "", size_text(m.download_bytes), "", f"not here: mlxchat models pull {m.alias}") for m in absent
    ]
    for line in aligned(rows):
        typer.echo(line)


def _row(entry: ModelInfo, size: str) -> tuple[str, ...]:
    notes = _abilities(entry)
    if entry.problem:
        notes = [entry.problem]
    elif not entry.fits:
        notes.append("too large for the free memory")
    elif entry.fitting_context < entry.context_limit:
        notes.append(f"{entry.fitting_context:,} tokens fit")
    if not (entry.problem or entry.reuse):
        notes.append("no KV reuse")
    notes += [f"called {alias}" for alias in entry.aliases]
    if entry.label:
        notes.append(entry.label)
    return (_plain(entry.name), entry.kind, entry.weights, size, f"{entry.context_limit:,}", _plain(", ".join(notes)))


@app.command("info")
def info_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Alias, repository, folder, or a unique part.", autocompletion=model_names
        ),
    ],
    adapter: Annotated[str | None, typer.Option("--adapter", help="Describe this adapter too.", metavar="DIR")] = None,
    json_output: JsonReport = False,
    offline: Offline = False,
) -> None:
    """Describe one model on this machine. Loads nothing and never connects, --offline or not."""
    from ..engine.adapter import read_adapter
    from ..engine.catalog import info

    entry, over = info(name), None if adapter is None else read_adapter(adapter)
    if json_output:
        _print_json(
            {"schema": "mlxchat.model/1", **entry.to_json(), "adapter": None if over is None else over.to_json()}
        )
        return
    for title, value in _description(entry).items():
        if value:
            typer.echo(f"{title + ':':10}{_plain(value)}")
    if over is not None:
        rank = "all weights" if over.rank is None else f"rank {over.rank}"
        base = f", trained on {over.base}" if over.base else ""
        typer.echo(f"adapter:  {_plain(over.name)}: {over.kind}, {rank}, {over.layers} layers{_plain(base)}")


def _description(entry: ModelInfo) -> dict[str, str]:
    """Titles and values of `info`, in order."""
    from ..engine.aliases import size_text
    from ..engine.catalog import FIT_TOKENS

    per_token = "unknown" if entry.kv_bytes_per_token is None else f"{entry.kv_bytes_per_token:,} bytes a token"
    tokens = min(FIT_TOKENS, entry.context_limit)
    fits = "fits" if entry.fits else "does not fit now"
    return {
        "name": f"{entry.name} ({entry.label})" if entry.label else entry.name,
        "folder": entry.path,
        "kind": entry.kind,
        "runs on": f"{entry.runs_on} ({'text and pictures' if entry.vision else 'text'})",
        "weights": f"{entry.weights}, {size_text(entry.disk_bytes)} on disk",
        "context": f"{entry.context_limit:,} tokens, {entry.fitting_context:,} of them fit into memory now",
        "KV cache": f"{per_token} in the global layers, {'reused' if entry.reuse else 'not reused'} across turns",
        "memory": f"{size_text(entry.memory_bytes)} at {tokens:,} tokens, {fits}",
        "template": ", ".join(_abilities(entry)) or "plain chat",
        "aliases": ", ".join(entry.aliases),
        "problem": entry.problem,
    }


def _abilities(entry: ModelInfo) -> list[str]:
    said = (("vision", entry.vision), ("tools", entry.tools), ("reasoning", entry.reasoning))
    return [word for word, has in said if has]


@app.command("pull")
def pull_command(
    names: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Aliases, or owner/model on Hugging Face.")],
    yes: Yes = False,
    offline: Offline = False,
    json_output: JsonReport = False,
) -> None:
    """Fetch models, after showing the size and asking. An alias that is here already is left alone."""
    from ..engine.download import pull
    from .download_progress import DownloadProgress

    confirm = _agree if yes else _question if _can_ask() else None
    folders: dict[str, str] = {}
    for name in names:
        with DownloadProgress() as progress:
            folders[name] = str(pull(name, confirm=confirm, progress=progress, offline=offline))
        if not json_output:
            typer.echo(f"{name} is in {folders[name]}")
    if json_output:
        _print_json({"schema": "mlxchat.pull/1", "folders": folders})


@app.command("rm")
def rm_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Aliases, or owner/model on Hugging Face.", autocompletion=model_names),
    ],
    force: Annotated[bool, typer.Option("--force", help="Remove without asking.")] = False,
    json_output: JsonReport = False,
) -> None:
    """Remove models that mlxchat fetched, after asking. What other programs brought here stays."""
    from ..engine.aliases import size_text
    from ..engine.removal import carry_out, plan

    removals = [plan(name) for name in names]
    if not force and not _can_ask():
        raise UsageError("nothing is removed unasked, and there is no terminal to ask at", "--force removes it")
    removed = []
    for removal in removals:
        name, size = removal.folder.name, size_text(removal.disk_bytes)
        if force or _question(f"Remove {_plain(name)} ({size})?"):
            carry_out(removal)
            removed.append({"name": name, "bytes": removal.disk_bytes})
            typer.echo(f"removed {_plain(name)}, {size}", err=True)
    if json_output:
        _print_json({"schema": "mlxchat.models-rm/1", "removed": removed})


def _agree(question: str) -> bool:
    """--yes: say what is fetched, and go on."""
    typer.echo(question.replace("Download ", "Downloading ", 1).replace("?", ".", 1), err=True)
    return True


def _question(question: str) -> bool:
    return typer.confirm(question, err=True)


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _plain(text: str) -> str:
    """Folder names are other people's: nothing in them may move the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _print_json(value: dict[str, object]) -> None:
    typer.echo(json.dumps(value, indent=2))
