"""Tab at the prompt: commands, and what may stand after them: paths, models, saved chats, words such as on and off."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from ..errors import MlxchatError
from .repl_commands import ALIASES, ARGUMENTS, COMMANDS

_TITLED = 50
"""So many of the chats used last are read for their first words."""

_WORDS = re.compile(r"^[a-z]+(\|[a-z]+)+")
_MODEL_COMMANDS = ("/model",)


class PromptCompleter(Completer):
    """Completes by what `repl_commands` says of a command's argument; within text the paths that are begun."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could stand where the cursor is."""
        text = document.text_before_cursor.lstrip()
        command, space, argument = text.partition(" ")
        command = ALIASES.get(command, command)
        if space and command in COMMANDS:
            return self._argument(command, argument, complete_event)
        found = list(_begun(text, [*COMMANDS, *ALIASES])) if text.startswith("/") and not space else []
        return found or self._path_in(text, complete_event)

    def _argument(self, command: str, typed: str, event: CompleteEvent) -> Iterable[Completion]:
        kind = ARGUMENTS.get(command, "").lstrip("[")
        if command in _MODEL_COMMANDS:
            return _begun(typed, model_names())
        if kind.startswith("ID"):
            return _sessions(typed)
        if kind.startswith(("PATH", "FILE")):
            return self._paths.get_completions(Document(typed), event)
        words = _WORDS.match(kind)
        return _begun(typed, words[0].split("|")) if words else ()

    def _path_in(self, text: str, event: CompleteEvent) -> Iterable[Completion]:
        word = re.split(r"\s", text)[-1]
        if "/" in word or word.startswith("~"):
            return self._paths.get_completions(Document(word), event)
        return ()


def model_names() -> list[str]:
    """What `-m` may be given of the models on this machine."""
    from ..engine.models import on_disk

    try:
        return [folder.name for folder in on_disk()]
    except (MlxchatError, OSError):
        return []


def _sessions(typed: str) -> Iterable[Completion]:
    """Saved chats whose ids begin so, the one used last first, with their first words."""
    from ..transcripts.session_file import read_session
    from ..transcripts.session_store import SessionStore

    for number, path in enumerate(SessionStore().paths()):
        if path.stem.startswith(typed.lower()):
            title = ""
            if number < _TITLED:
                try:
                    title = read_session(path).title
                except MlxchatError:
                    continue  # /load couldn't read it either
            yield Completion(path.stem, -len(typed), display_meta=title)


def _begun(typed: str, words: Iterable[str]) -> Iterable[Completion]:
    return (Completion(word, -len(typed)) for word in words if word.startswith(typed))
