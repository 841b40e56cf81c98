"""docs/reference.md, written from the program: `python tests/support/reference_page.py > docs/reference.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlxchat.cli.app import build_app
from mlxchat.cli.repl_commands import ARGUMENTS
from mlxchat.cli.repl_commands import COMMANDS as SLASH_COMMANDS
from typer.main import get_command

HEAD = """# Every command, flag and slash command

Made from the program's own help, as [flags.md](flags.md) is, which has the flags of the chat. The other pages tell what
they are for: [chat.md](chat.md), [terminal.md](terminal.md), [sessions.md](sessions.md), [models.md](models.md),
[config.md](config.md), [replay.md](replay.md), [batch.md](batch.md), [formats.md](formats.md), [tools.md](tools.md).
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command but the chat, by its words: `models list`."""
    program: Any = get_command(build_app())
    for name in program.list_commands(None):
        if name != "chat":
            yield from _below(name, program.get_command(None, name))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _below(f"{words} {name}", inner)
    else:
        yield words, command


def names(param: Any) -> str:
    """As it is typed."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    shown = " / ".join([", ".join(sorted(param.opts, key=len)), *param.secondary_opts])
    return f"{shown} {param.metavar}" if param.metavar else shown


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for words, command in commands():
        summary = " ".join(str(command.help).split())
        parts.append(f"\n## mlxchat {words}\n\n{summary}\n\n| | |\n|---|---|\n")
        for param in command.params:
            if param.name != "help":
                parts.append(f"| `{names(param)}` | {param.help} |\n".replace("|JSON", "\\|JSON"))
    parts.append("\n## In a chat\n\n| command | |\n|---|---|\n")
    for name, words in SLASH_COMMANDS.items():
        typed = f"{name} {ARGUMENTS.get(name, '')}".strip().replace("|", "\\|")
        parts.append(f"| `{typed}` | {words} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
