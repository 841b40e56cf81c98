"""The commands besides the chat, each imported only when it is run or asked for its own help.

Reading their modules would be a third of the time of `mlxchat --help`, and every later command would add to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command


@dataclass(frozen=True)
class OtherCommand:
    """Where a command is: a typer app, or a plain function, in a module of this package. `summary` is its help line."""

    module: str
    attribute: str
    summary: str

    def load(self, name: str) -> Any:
        """The parser's command object."""
        target = getattr(import_module(f".{self.module}", __package__), self.attribute)
        wrapper = typer.Typer(add_completion=False, rich_markup_mode=None)
        wrapper.callback()(lambda: None)
        if isinstance(target, typer.Typer):
            wrapper.add_typer(target, name=name)
        else:
            wrapper.command(name)(target)
        group: Any = get_command(wrapper)
        return group.commands[name]


OTHER_COMMANDS = {
    "sessions": OtherCommand("session_commands", "app", "List, show, search, export and remove saved chats."),
    "replay": OtherCommand(
        "replay_command", "replay", "Run a recorded chat or agent trace and show what each request costs, and why."
    ),
    "batch": OtherCommand(
        "batch_command", "batch", "Answer a file of requests, several at once; run it again to go on where it stopped."
    ),
    "models": OtherCommand("model_commands", "app", "List, describe, fetch and remove models."),
    "cache": OtherCommand("cache_command", "app", "Show where KV caches are kept, how large they are and may be."),
    "convert": OtherCommand(
        "convert_command", "convert", "Turn a transcript into OpenAI messages, a session trace (STS) or markdown."
    ),
    "config": OtherCommand("config_command", "app", "Show and edit the settings."),
    "doctor": OtherCommand("doctor", "doctor", "Say what mlxchat runs on here, and what would make it run better."),
}
