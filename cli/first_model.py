"""The first run at a terminal with no model chosen: what is here, what is worth fetching, and the choice remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import OutputError, UsageError
from .chat_flags import ChatFlags
from .config_files import shown, user_file
from .config_text import set_value
from .input_sources import Stdin
from .model_choice import ensure_model
from .streams import Streams, is_terminal
from .text_table import aligned

if TYPE_CHECKING:
    from ..engine.catalog import ModelInfo

_MOST_SHOWN = 12


@dataclass(frozen=True)
class Choice:
    """A line of the chooser: the model's name, and what is said of it."""

    name: str
    words: str


def choose_first_model(flags: ChatFlags, stdin: Stdin, streams: Streams) -> ChatFlags:
    """The flags with a model that the user chose, where nobody has chosen one and the demo model isn't here either.

    Changes nothing off a terminal, for a chat that goes on, and where there is nothing to choose from. Raises
    ModelError for a download that came to nothing.
    """
    if flags.model or flags.defaults.get("model") or flags.resumes or flags.machine_output:
        return flags
    if not (stdin.is_open and stdin.is_terminal and is_terminal(streams.stderr)) or _default_is_here():
        return flags
    choices = first_choices(flags.offline)
    if len(choices) < 2:
        return flags
    name = _ask(choices, streams)
    ensure_model(name, offline=flags.offline, yes=flags.yes, streams=streams, stdin=stdin)
    _remember(name, streams)
    return replace(flags, model=name)


def first_choices(offline: bool) -> list[Choice]:
    """Usable models on disk, those that fit first; one worth fetching for this machine; the demo."""
    from ..engine.aliases import DEFAULT_ALIAS, EMBEDDED, size_text
    from ..engine.catalog import list_models
    from ..engine.memory_fit import usable_memory
    from ..engine.recommended import recommended

    usable = sorted((model for model in list_models() if not model.problem), key=lambda model: not model.fits)
    choices = [Choice(model.name, _words(model)) for model in usable[:_MOST_SHOWN]]
    if offline:
        return choices
    here = {choice.name for choice in choices}
    worth = recommended(usable_memory())
    if worth is not None and worth not in here:
        choices.append(Choice(worth, "recommended for this machine, to be downloaded"))
    demo = EMBEDDED[DEFAULT_ALIAS]
    choices.append(Choice(demo.alias, f"{demo.label}; to be downloaded, {size_text(demo.download_bytes)}"))
    return choices


def _words(model: ModelInfo) -> str:
    from ..engine.aliases import size_text

    said = (("vision", model.vision), ("tools", model.tools), ("reasoning", model.reasoning))
    parts = [model.weights, size_text(model.disk_bytes), *(word for word, has in said if has)]
    if not model.fits:
        parts.append("too large for the free memory")
    return ", ".join(part for part in parts if part)


def _ask(choices: list[Choice], streams: Streams) -> str:
    from typer import prompt

    streams.note("no model is chosen yet; these are here, or worth fetching:")
    for line in aligned([(f"{number:>3}", choice.name, choice.words) for number, choice in enumerate(choices, 1)]):
        streams.note(line)
    while True:
        answer = str(prompt("which one", default="1", err=True)).strip()
        try:
            return _chosen(answer, choices)
        except UsageError as error:
            streams.note(f"{error.message}; {error.hint}")


def _chosen(answer: str, choices: list[Choice]) -> str:
    """The choice of that number, or whose name holds `answer`. Raises UsageError for none, or for several."""
    if answer.isdecimal() and 1 <= int(answer) <= len(choices):
        return choices[int(answer) - 1].name
    found = [choice.name for choice in choices if answer.lower() in choice.name.lower()]
    if len(found) != 1:
        raise UsageError(f"`{answer}` is none of these", f"a number from 1 to {len(choices)}, or part of one name")
    return found[0]


def _default_is_here() -> bool:
    from ..engine.aliases import DEFAULT_ALIAS
    from ..engine.models import embedded_folder

    return embedded_folder(DEFAULT_ALIAS) is not None


def _remember(name: str, streams: Streams) -> None:
    try:
        set_value(user_file(), "model", name)
    except OutputError as error:
        streams.note(f"the choice isn't remembered: {error.message}")
    else:
        streams.note(f"remembered in {shown(user_file())}; mlxchat config edit changes it, -m NAME takes another")
