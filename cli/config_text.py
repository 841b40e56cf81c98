"""Writes config.toml: the first text of it, and single values into what the user has written there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from ..errors import OutputError

FIRST_TEXT = """\
# mlxchat's settings. A flag on the command line, a variable such as MLXCHAT_TEMP, and a project's mlxchat.toml go
# before them. docs/config.md has every key; mlxchat config show --origin tells what holds, and why.

# model = "mlx-community/Qwen3-4B-4bit"
# temp = 0.7
# system = "@system.txt"          # a file beside this one
# cache_bytes = "20GB"

# [options]                       # what -o takes
# repetition_penalty = 1.1

# [aliases]                       # names of yours for models
# qwen = "mlx-community/Qwen3-4B-4bit"
"""


def toml_text(value: Any) -> str:
    """A value as TOML writes it on one line."""
    import tomlkit

    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return str(table.as_string())
    return str(tomlkit.item(value).as_string())


def set_value(path: Path, name: str, value: Any) -> None:
    """Set one key of the file, its comments and order left as they are. Raises OutputError."""
    import tomlkit

    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = tomlkit.parse(FIRST_TEXT)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} can't be changed: {error}", "mlxchat config edit opens it") from error
    document[name] = value
    write_private(path, tomlkit.dumps(document))


def write_private(path: Path, text: str) -> None:
    """Put `text` there at once or not at all, for its owner only. Raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = path.resolve()  # a link to a file kept elsewhere stays one
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".config-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"can't write {path}: {error.strerror}", "see its folder's permissions and space") from error
