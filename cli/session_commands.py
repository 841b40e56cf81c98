"""`mlxchat sessions list|show|rm|rename|search|export`: the chats that were saved. Loads no model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.sanitize import sanitize
from ..errors import UsageError
from ..transcripts.session_appender import is_open
from ..transcripts.session_export import export, openai_messages
from ..transcripts.session_file import SavedSession, read_session
from ..transcripts.session_search import Found, search
from ..transcripts.session_store import SessionStore, updated
from ..transcripts.writing import OutputFormat, write_file
from .ages import parse_age
from .completions import session_ids
from .failures import as_mlxchat_error, lines
from .json_output import write_json
from .session_table import FIRST_WORDS, session_table
from .shared_options import JsonReport
from .streams import Streams

app = typer.Typer(
    name="sessions",
    help="List, show, search, export and remove saved chats.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Which = Annotated[
    str, typer.Argument(metavar="ID", help="A session's id, or the start of it.", autocompletion=session_ids)
]


@app.command("list")
def list_command(json_output: JsonReport = False) -> None:
    """Show the saved chats, the one used last first: id, age, turns, model, first words."""
    store, streams = SessionStore(), Streams()
    sessions, troubles = store.readable()
    if json_output:
        _print(streams, "sessions", folder=str(store.folder), sessions=[summary(one) for one in sessions])
    elif not sessions:
        streams.note("no chat is saved yet")
    else:
        for line in session_table(sessions):
            streams.write(sanitize(line) + "\n")
    for trouble in troubles:
        streams.note(lines(as_mlxchat_error(trouble))[0])


@app.command("show")
def show_command(which: Which, json_output: JsonReport = False) -> None:
    """Show one chat: its settings and every message of the branch spoken on last."""
    streams, session = Streams(), _read(which)
    if json_output:
        messages = [
            {"id": entry.id, "parent_id": entry.parent_id, **message}
            for entry, message in zip(session.conversation, openai_messages(session), strict=True)
        ]
        _print(
            streams,
            "session",
            **summary(session),
            settings=session.settings.to_json(),
            messages=messages,
            skipped=[{"line": skipped.line, "why": skipped.why} for skipped in session.skipped],
        )
        return
    streams.write(sanitize(export(session, "markdown")))
    for skipped in session.skipped:
        streams.note(f"line {skipped.line} is left out: {skipped.why}")


@app.command("rm")
def rm_command(
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Ids, or their starts.", autocompletion=session_ids)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every saved chat.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Remove those not used for so long.", metavar="AGE")
    ] = None,
    json_output: JsonReport = False,
) -> int:
    """Remove chats, and the pictures that no other chat names. One that is open in another program stays."""
    store, streams = SessionStore(), Streams()
    chosen = [bool(which), everything, older_than is not None]
    if sum(chosen) != 1:
        raise UsageError("say which chats to remove", "their ids, or --all, or --older-than 30d")
    paths = [store.find(one) for one in which] if which else store.paths()
    if older_than is not None:
        before = time.time() - parse_age(older_than)
        paths = [path for path in paths if updated(path) < before]
    gone = store.remove(list(dict.fromkeys(paths)))
    records = _forget(gone.removed, streams)
    if json_output:
        _print(
            streams,
            "sessions-rm",
            removed=list(gone.removed),
            open=list(gone.busy),
            images=gone.images,
            kept_records=records,
        )
    else:
        streams.note(f"removed {_count(len(gone.removed), 'chat')}" + _pictures(gone.images))
    for busy in gone.busy:
        streams.note(f"{busy} is open in another program, and stays")
    return 1 if gone.busy else 0


def _forget(removed: Sequence[str], streams: Streams) -> int:
    """Delete what a kept KV cache holds of removed chats alone; how many records that was."""
    from ..engine.folders import kept_dirs

    folders = [folder for folder in kept_dirs() if folder.is_dir()]
    if not folders:
        return 0
    from ..cache.kept_folder import forget

    records = 0
    for folder in folders:
        try:
            records += sum(forget(folder, session) for session in removed)
        except OSError as error:
            streams.note(f"the kept KV cache in {folder} can't be changed: {error.strerror}; remove the folder by hand")
    return records


@app.command("rename")
def rename_command(
    which: Which,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it; empty: its first words again.")],
    json_output: JsonReport = False,
) -> None:
    """Give a chat a name."""
    store, streams = SessionStore(), Streams()
    path, name = store.find(which), " ".join(name.split())
    read_session(path)  # what is no session gets no line of ours
    store.rename(path, name)
    if json_output:
        _print(streams, "sessions-rename", id=path.stem, name=name or None)
    else:
        streams.note(f"{path.stem} is called “{name}”" if name else f"{path.stem} has no name")


@app.command("search")
def search_command(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="What to look for, in any case.")],
    json_output: JsonReport = False,
) -> None:
    """Find messages, on every branch of every chat, that hold these words."""
    streams, wanted = Streams(), " ".join(words)
    if not wanted.strip():
        raise UsageError("there is nothing to look for", "give a word or more")
    found = list(search(SessionStore().readable()[0], wanted))
    if json_output:
        matches = [_match(one) for one in found]
        _print(streams, "sessions-search", words=wanted, matches=matches)
        return
    for one in found:
        streams.write(sanitize(f"{one.session.id}  {one.role:<9}  {one.excerpt}") + "\n")
    if not found:
        streams.note("no saved chat holds that")


@app.command("export")
def export_command(
    which: Which,
    form: Annotated[OutputFormat, typer.Option("--format", help="markdown, openai or sts.")] = "markdown",
    out: Annotated[str | None, typer.Option("--out", help="Write to this file.", metavar="FILE")] = None,
    json_output: JsonReport = False,
) -> None:
    """Write one chat, the branch spoken on last, for people or for other programs."""
    streams, session = Streams(), _read(which)
    text = export(session, form)
    if out is not None:
        write_file(Path(out).expanduser(), iter([text]))
    if json_output:
        _print(streams, "sessions-export", id=session.id, format=form, out=out, text=None if out is not None else text)
    elif out is None:
        streams.write(sanitize(text) if form == "markdown" else text)
    else:
        streams.note(f"{session.id} is in {out}")


def summary(session: SavedSession) -> dict[str, Any]:
    """One session in `sessions list --json`."""
    last = updated(session.path)
    return {
        "id": session.id,
        "name": session.name,
        "opening": session.opening[:FIRST_WORDS],
        "model": session.settings.model,
        "turns": session.turns,
        "message_count": len(session.conversation),
        "created": session.created,
        "updated": round(last * 1000),
        "age_s": max(0, round(time.time() - last)),
        "bytes": session.path.stat().st_size if session.path.exists() else 0,
        "open": is_open(session.path),
        "forked_from": session.forked_from,
        "path": str(session.path),
    }


def _read(which: str) -> SavedSession:
    return read_session(SessionStore().find(which))


def _match(one: Found) -> dict[str, Any]:
    return {"id": one.session.id, "message_id": one.message_id, "role": one.role, "excerpt": one.excerpt}


def _print(streams: Streams, schema: str, **fields: Any) -> None:
    write_json(streams, {"schema": f"mlxchat.{schema}/1", **fields})


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _pictures(number: int) -> str:
    return f" and {_count(number, 'picture')}" if number else ""
