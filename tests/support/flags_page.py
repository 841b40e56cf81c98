"""docs/flags.md, written from the program's own options: `python tests/support/flags_page.py > docs/flags.md`."""

from __future__ import annotations

from typing import Any

from mlxchat.cli.app import build_app
from typer.main import get_command

HEAD = """# Flags

Made from the program's own help; `mlxchat --help` says the same. Options go before or after the prompt, and after `--`
all is prompt. Any of them can be left out.
"""


def chat_params() -> list[Any]:
    """The options and arguments of the default command, `--help` left out."""
    program: Any = get_command(build_app())
    return [param for param in program.commands["chat"].params if param.name != "help"]


def names(param: Any) -> str:
    """As it is typed: `-m, --model NAME`, `--think / --no-think`."""
    if param.param_type_name == "argument":
        return "PROMPT"
    shown = ", ".join(sorted(param.opts, key=len))
    shown = " / ".join([shown, *param.secondary_opts])
    return f"{shown} {param.metavar}" if param.metavar else shown


def page() -> str:
    """The whole page."""
    panels: dict[str, list[str]] = {}
    for param in chat_params():
        default = "" if param.default in (None, False, 0) else f" Default: `{param.default}`."
        row = f"| `{names(param).replace('|', chr(92) + '|')}` | {param.help}{default} |"
        panels.setdefault(getattr(param, "rich_help_panel", None) or "Other", []).append(row)
    other = panels.pop("Other")
    prompt, rest = other[:1], other[1:]
    tables = {"Prompt": prompt, **panels, "Other": rest}
    sections = [
        f"\n## {name}\n\n| flag | what it does |\n|---|---|\n{chr(10).join(rows)}\n" for name, rows in tables.items()
    ]
    return HEAD + "".join(sections)


if __name__ == "__main__":
    print(page(), end="")
