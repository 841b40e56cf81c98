"""The table of docs/config.md, written from the program's own keys."""

from __future__ import annotations

from mlxchat.cli.config_keys import KEYS, Key


def row(key: Key) -> str:
    """One key: its name, variable, flag, default, and whether a project may set it."""
    variable = f"`{key.variable}`" if key.variable else ""
    negation = "--no-" if key.negated else "--"
    flag = {"": "", "option": "`-o`"}.get(key.flag, f"`{negation}{key.name.replace('_', '-')}`")
    project = "yes" if key.project else ""
    return f"| `{key.name}` | {flag} | {variable} | {key.default} | {project} |"


def table() -> str:
    """The table, with its head."""
    head = "| key | flag | variable | default | a project may |\n|---|---|---|---|---|\n"
    return head + "".join(f"{row(key)}\n" for key in KEYS.values())


if __name__ == "__main__":
    print(table(), end="")
