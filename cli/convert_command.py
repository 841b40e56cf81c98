"""`mlxchat convert IN OUT`: a transcript of any known format as OpenAI messages, a session trace or markdown."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError

if TYPE_CHECKING:
    from ..transcripts.model import Transcript
    from ..transcripts.writing import OutputFormat

_MOST_NAMED = 5
_SUFFIX = {"openai": ".jsonl", "sts": ".sts.jsonl", "markdown": ".md"}


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A transcript, or a folder of them.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A file, a folder, or - for stdout.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="openai, sts or markdown. Default: by OUT.")] = "",
    format_name: Annotated[str, typer.Option("--format", metavar="NAME", help="The format of IN, if not clear.")] = "",
    bare: Annotated[bool, typer.Option("--bare", help="OpenAI messages without mlxchat's own fields.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Turn a transcript into OpenAI messages, a session trace (STS) or markdown."""
    from ..transcripts.reading import read

    chosen = _output_format(out, to)
    if json_output and out == "-":
        raise UsageError("--json and OUT - both want stdout", "name a file")
    folder = out != "-" and (out.endswith("/") or Path(out).is_dir())
    if out != "-" and not folder:
        _check_target(Path(source), Path(out), force)
    transcript = read(Path(source), format_name or None)
    if folder:
        written = _to_folder(transcript, Path(out), chosen, bare, force)
    else:
        written = _to_one(transcript, out, chosen, bare)
    report = {
        "schema": "mlxchat.convert/1",
        "format": transcript.format,
        "to": chosen,
        "files": written,
        **_counts(transcript),
    }
    if json_output:
        typer.echo(json.dumps(report))
    else:
        _say(transcript, report)


def _output_format(out: str, to: str) -> OutputFormat:
    from ..transcripts.writing import OUTPUT_FORMATS, format_for

    found = next((known for known in OUTPUT_FORMATS if known == to), None) if to else format_for(out)
    if found is None:
        words = f"no output format is called {to!r}" if to else f"{out} doesn't say what format it should have"
        raise UsageError(words, f"--to takes {', '.join(OUTPUT_FORMATS)}")
    return found


def _check_target(source: Path, out: Path, force: bool) -> None:
    if out.exists() and source.exists() and out.samefile(source):
        raise UsageError("OUT is the same file as IN", "name another one")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already", "--force replaces it")


def _to_one(transcript: Transcript, out: str, to: OutputFormat, bare: bool) -> list[str]:
    from ..transcripts.writing import render, write_file

    pieces = render(transcript, to, document=out.lower().endswith(".json"), bare=bare)
    if out == "-":
        for piece in pieces:
            sys.stdout.write(piece.encode("utf-8", "replace").decode())
        return []
    write_file(Path(out), pieces)
    return [out]


def _to_folder(transcript: Transcript, folder: Path, to: OutputFormat, bare: bool, force: bool) -> list[str]:
    """One file for each conversation that holds text."""
    from ..errors import OutputError
    from ..transcripts.writing import render, write_file

    targets: dict[Path, Any] = {}
    for conversation in transcript.conversations:
        if conversation.entries:
            targets[_free(folder, conversation.id, _SUFFIX[to], targets)] = conversation
    for path in targets:
        if path.exists() and not force:
            raise UsageError(f"{path} is there already", "--force replaces it")
    if not targets:
        render(transcript, to)  # says why there is nothing to write
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} can't be made: {error.strerror or error}", "name another folder") from error
    for path, conversation in targets.items():
        write_file(path, render(replace(transcript, conversations=(conversation,)), to, bare=bare))
    return [str(path) for path in targets]


def _free(folder: Path, name: str, suffix: str, taken: dict[Path, Any]) -> Path:
    """A path for the conversation `name` that isn't taken yet; letters that a file name can't have are replaced."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:100] or "conversation"
    path, count = folder / f"{stem}{suffix}", 1
    while path in taken:
        count += 1
        path = folder / f"{stem}-{count}{suffix}"
    return path


def _counts(transcript: Transcript) -> dict[str, Any]:
    messages = [entry.message for conversation in transcript.conversations for entry in conversation.entries]
    return {
        "conversations": len(transcript.conversations),
        "messages": len(messages),
        "requests": sum(len(conversation.requests) for conversation in transcript.conversations),
        "tool_calls": sum(len(message.tool_calls) for message in messages),
        "reasoning_parts": sum(message.reasoning is not None for message in messages),
        "missing": list(transcript.missing),
        "skipped": [{"file": line.file, "line": line.line, "why": line.why} for line in transcript.skipped],
    }


def _say(transcript: Transcript, report: dict[str, Any]) -> None:
    """What was read, on stderr: stdout may be the transcript itself."""
    from ..engine.sanitize import sanitize

    typer.echo(
        f"read {report['format']}: {_many(report['conversations'], 'conversation')}, "
        f"{_many(report['messages'], 'message')}, {_many(report['requests'], 'request')}, "
        f"{_many(report['tool_calls'], 'tool call')}",
        err=True,
    )
    if transcript.missing:
        typer.echo(f"not in the transcript: {', '.join(transcript.missing)}", err=True)
    if transcript.skipped:
        typer.echo(f"skipped {_many(len(transcript.skipped), 'line')}", err=True)
    for line in transcript.skipped[:_MOST_NAMED]:
        where = f"{line.file}, line {line.line}" if line.file else f"line {line.line}"
        typer.echo(sanitize(f"  {where}: {line.why}"), err=True)
    if len(transcript.skipped) > _MOST_NAMED:
        typer.echo(f"  and {len(transcript.skipped) - _MOST_NAMED:,} more (--json names them all)", err=True)
    for file in report["files"]:
        typer.echo(f"wrote {file}", err=True)


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
