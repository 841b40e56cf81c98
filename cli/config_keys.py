"""What config.toml may hold: the keys, their values, and which of them a project's file may set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from ..errors import UsageError
from .ages import parse_age
from .sampling_settings import read_settings
from .sizes import parse_size

Kind = Literal["text", "texts", "number", "count", "switch", "choice", "size", "age", "table"]

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_SWITCH_WORDS = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}
_KIND_WORDS = {
    "text": "text",
    "texts": "a list of texts",
    "number": "a number",
    "count": "a whole number",
    "switch": "true or false",
}


@dataclass(frozen=True)
class Key:
    """One key. It means what the flag of the same name means; a key whose flag is `--no-X` is called X.

    flag      the field of the command's flags, "" if no flag says the same
    default   what holds without it, for `config show`
    project   whether a project's file may set it
    kept      whether a saved chat keeps it, and so goes on with its own
    """

    name: str
    kind: Kind
    default: str
    flag: str = ""
    negated: bool = False
    project: bool = False
    kept: bool = False
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[Any, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it, "" for a table."""
        return "" if self.kind == "table" else f"MLXCHAT_{self.name.upper()}"


def _of_chat(name: str, kind: Kind, default: str, **more: Any) -> Key:
    """A key that a project may set, and that a saved chat keeps."""
    return Key(name, kind, default, flag=name, project=True, kept=True, **more)


def _own(name: str, kind: Kind, default: str, **more: Any) -> Key:
    """A key of the user's own file and the environment alone."""
    return Key(name, kind, default, **{"flag": name, **more})


def _without(name: str, default: str = "true") -> Key:
    return Key(name, "switch", default, flag=f"no_{name}", negated=True)


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        _of_chat("model", "text", "smollm2"),
        _of_chat("system", "text", "none"),
        _of_chat("template", "text", "the model's own"),
        _of_chat("think", "switch", "the template's choice"),
        _of_chat("think_budget", "count", "no limit", least=0),
        _of_chat("temp", "number", "the model's advice, else 0", least=0),
        _of_chat("top_p", "number", "the model's advice", least=0, most=1),
        _of_chat("top_k", "count", "the model's advice", least=0),
        _of_chat("min_p", "number", "the model's advice", least=0, most=1),
        _of_chat("max_tokens", "count", "up to the context's end", least=1),
        _of_chat("seed", "count", "another each time", least=0),
        Key("options", "table", "none", flag="option", project=True, kept=True),
        _own("offline", "switch", "false"),
        _own("color", "choice", "auto", choices=("auto", "always", "never")),
        _without("stream"),
        _without("markdown"),
        _without("save"),
        _without("ahead"),
        _without("cache"),
        _own("cache_dir", "text", "the cache folder"),
        _own("cache_bytes", "size", "from free disk and memory"),
        _own("cache_park", "age", "15m"),
        _own("cache_ttl", "age", "as long as there is room"),
        _own("cache_persist", "switch", "false"),
        _own("cache_tenant", "text", "none"),
        _own("kv_bits", "count", "as computed", choices=(4, 8)),
        _own("kv_group_size", "count", "64", choices=(32, 64, 128)),
        _own("tools", "texts", "none"),
        _own("mcp", "texts", "none"),
        _own("allow_tool", "texts", "every call is asked for"),
        _own("max_steps", "count", "30", least=1),
        _own("editor", "text", "$VISUAL, else $EDITOR", flag=""),
    )
}
"""Every key but `aliases`, a table of names for models that only the user's own file may have."""

ALIASES = "aliases"


def read_value(key: Key, raw: Any, *, from_text: bool = False) -> Any:
    """The value of `key`: `raw` as TOML has it, or, with `from_text`, as a variable does. Raises UsageError."""
    if key.kind == "table":
        _check_options(key, raw)
        return raw
    value = _from_text(key, raw) if from_text else raw
    good = {
        "switch": isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
        "count": isinstance(value, int) and not isinstance(value, bool),
        "texts": isinstance(value, list) and bool(value) and all(isinstance(one, str) and one for one in value),
        "size": isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)),
    }.get(key.kind, isinstance(value, str) and bool(value.strip()))
    if good and key.choices:
        good = value in key.choices
    if good and key.kind in ("number", "count"):
        good = key.least <= value <= key.most
    if not good:
        raise UsageError(f"`{key.name}` takes {_takes(key)}, not `{raw}`", "mlxchat config edit opens the file")
    if key.kind == "size":
        parse_size(str(value), f"`{key.name}`")
        return str(value)
    if key.kind == "age":
        parse_age(value, f"`{key.name}`")
    return value


def _from_text(key: Key, text: str) -> Any:
    """What a variable's text means; the text itself where it means nothing, for the error to show."""
    if key.kind == "texts":
        return [one.strip() for one in text.split(",")]
    if key.kind == "switch":
        return _SWITCH_WORDS.get(text.strip().lower(), text)
    if key.kind in ("number", "count"):
        try:
            return int(text) if key.kind == "count" else float(text)
        except ValueError:
            return text
    return text


def _takes(key: Key) -> str:
    if key.choices:
        return " or ".join(", ".join(str(choice) for choice in key.choices).rsplit(", ", 1))
    words = _KIND_WORDS.get(key.kind, "text")
    if math.isfinite(key.most):
        return f"{words} from {key.least:g} to {key.most:g}"
    return f"{words}, {key.least:g} or more" if math.isfinite(key.least) else words


def option_words(table: Mapping[str, Any]) -> list[str]:
    """The table `options` as -o would have it: `["repetition_penalty=1.1", "stop=END"]`."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in table.items()}
    return [f"{name}={one}" for name, values in lists.items() for one in values]


def _check_options(key: Key, raw: Any) -> None:
    if not isinstance(raw, Mapping):
        raise UsageError(f"`{key.name}` takes a table, not `{raw}`", "for example [options], then stop = ['END']")
    try:
        read_settings(option_words(raw))
    except UsageError as error:
        raise UsageError(f"in `{key.name}`: {error.message.replace('-o ', '')}", error.hint) from error


def unknown(name: str) -> str:
    """The words for a key that there is none of."""
    near = get_close_matches(name, [*KEYS, ALIASES], n=1)
    return f"no setting is called `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
