"""`mlxchat config path|show|edit`: the settings, where each comes from, and the file to change them in."""

from __future__ import annotations

import shlex
import subprocess
from typing import Annotated, Any

import typer

from ..engine.sanitize import sanitize
from ..errors import InputError, MlxchatError, UsageError
from .config_files import Source, read_user, user_file
from .config_keys import ALIASES, KEYS, Key
from .config_text import FIRST_TEXT, toml_text, write_private
from .configuration import Configuration
from .json_output import write_json
from .shared_options import JsonReport
from .streams import Streams

app = typer.Typer(name="config", help="Show and edit the settings.", no_args_is_help=True, rich_markup_mode=None)


@app.command("path")
def path_command(json_output: JsonReport = False) -> None:
    """Print where the user's config.toml is, there or not, and the project's file if there is one."""
    streams, project = Streams(), Configuration.read_projects()
    user = user_file()
    if json_output:
        found = str(project.file) if project.file is not None else None
        write_json(streams, {"schema": "mlxchat.config-path/1", "user": str(user), "project": found})
        return
    streams.write(f"{user}\n")
    if project.file is not None:
        streams.note(f"the project's: {project.file}")


@app.command("show")
def show_command(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    json_output: JsonReport = False,
) -> None:
    """Show the settings that hold here, as TOML; those that nobody set stand behind a #."""
    streams, configuration = Streams(), Configuration.read()
    if json_output:
        write_json(streams, _report(configuration))
    else:
        for line in _lines(configuration, origin):
            streams.write(sanitize(line) + "\n")
    for note in configuration.notes:
        streams.note(note)


@app.command("edit")
def edit_command() -> None:
    """Open the user's config.toml in an editor, and say what is wrong with it afterwards."""
    streams, path = Streams(), user_file()
    editor = _editor()
    if editor is None:
        raise UsageError("no editor is set", f"EDITOR=nano mlxchat config edit, or open {path} yourself")
    if not path.exists():
        write_private(path, FIRST_TEXT)
    try:
        code = subprocess.call([*shlex.split(editor), str(path)])
    except (OSError, ValueError) as error:
        raise InputError(f"can't run the editor {editor}: {error}", "set EDITOR to one that is here") from error
    if code != 0:
        raise MlxchatError(f"the editor {editor} ended with code {code}", "mlxchat config show tells what holds")
    for note in read_user(path).notes:
        streams.note(note)


def _editor() -> str | None:
    """The editor; a file that is broken, which is what it may be opened for, has no say in it."""
    try:
        return Configuration.read().editor()
    except MlxchatError:
        return Configuration(Source(""), Source(""), Source("")).editor()


def _lines(configuration: Configuration, origin: bool) -> list[str]:
    rows = [_line(key, configuration, origin) for key in KEYS.values()]
    if configuration.user.aliases:
        rows += ["", f"[{ALIASES}]"]
        rows += [f"{toml_text(name)} = {toml_text(model)}" for name, model in configuration.user.aliases.items()]
    return rows


def _line(key: Key, configuration: Configuration, origin: bool) -> str:
    source = configuration.source_of(key.name)
    if source is None:
        return f"# {key.name} = ({key.default})" + ("  # default" if origin else "")
    where = key.variable if source is configuration.environment else source.origin
    return f"{key.name} = {toml_text(configuration.value(key.name))}" + (f"  # {where}" if origin else "")


def _report(configuration: Configuration) -> dict[str, Any]:
    files = {"user": configuration.user.file, "project": configuration.project.file}
    return {
        "schema": "mlxchat.config/1",
        "files": {name: None if file is None else str(file) for name, file in files.items()},
        "settings": {key.name: _setting(key, configuration) for key in KEYS.values()},
        "aliases": configuration.user.aliases,
        "notes": configuration.notes,
    }


def _setting(key: Key, configuration: Configuration) -> dict[str, Any]:
    source = configuration.source_of(key.name)
    places = {id(configuration.environment): "environment", id(configuration.project): "project"}
    origin = "default" if source is None else places.get(id(source), "user")
    where = None if source is None else (key.variable if origin == "environment" else str(source.file))
    return {"value": configuration.value(key.name), "origin": origin, "where": where}
