"""The settings that hold where no flag says otherwise: environment > project > user > default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .config_files import Source, project_file, read_environment, read_project, read_user, user_file
from .config_keys import KEYS, Key, option_words

if TYPE_CHECKING:
    from .batch_flags import BatchFlags
    from .chat_flags import ChatFlags
    from .replay_flags import ReplayFlags
    from .streams import Streams

    Flags = TypeVar("Flags", BatchFlags, ChatFlags, ReplayFlags)
    Runs = TypeVar("Runs", BatchFlags, ReplayFlags)


@dataclass(frozen=True)
class Configuration:
    """What the places say, the one that counts first."""

    environment: Source
    project: Source
    user: Source

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Configuration:
        """The settings for a program run in `folder` (default: the working folder). Raises UsageError, DataError."""
        return cls(
            read_environment(os.environ if environment is None else environment),
            cls.read_projects(folder),
            read_user(user_file()),
        )

    @staticmethod
    def read_projects(folder: Path | None = None) -> Source:
        """What the project's file says, if there is one."""
        try:
            found = project_file(folder or Path.cwd())
        except OSError:  # the working folder is gone, or not to be looked at
            found = None
        return read_project(found) if found is not None else Source("no project")

    @property
    def notes(self) -> list[str]:
        """What was not obeyed, a line each."""
        return [note for source in self.sources for note in source.notes]

    def tell(self, streams: Streams) -> None:
        """Say what was not obeyed, and on a terminal what a project's file sets."""
        for note in self.notes:
            streams.note(note)
        if self.project.values and streams.live:
            streams.note(f"{self.project.origin} sets {', '.join(self.project.values)}")

    @property
    def sources(self) -> tuple[Source, Source, Source]:
        """The places in the order in which they count."""
        return (self.environment, self.project, self.user)

    def source_of(self, name: str) -> Source | None:
        """The place whose value of a key holds; None for the default."""
        return next((source for source in self.sources if name in source.values), None)

    def value(self, name: str) -> Any:
        """The value that holds; None for the default."""
        source = self.source_of(name)
        return None if source is None else source.values[name]

    def editor(self) -> str | None:
        """The command that opens a file for the user: the setting, $VISUAL, $EDITOR; None if there is none."""
        return self.value("editor") or os.environ.get("VISUAL") or os.environ.get("EDITOR") or None

    def name_editor(self) -> None:
        """Have the terminal's line editor, which looks at $VISUAL, take the editor of the settings."""
        if editor := self.value("editor"):
            os.environ["VISUAL"] = editor

    def applied(self, flags: ChatFlags) -> ChatFlags:
        """The flags of a chat, with what they leave open; what a saved chat keeps is only handed on as `defaults`."""
        defaults = {key.flag: self._as_flag(key) for key in self._set() if key.kept}
        filled = self._fill(flags, [key for key in self._set() if not key.kept])
        if filled.no_save:
            filled = replace(filled, cache_persist=flags.cache_persist)
        if filled.no_cache:
            filled = replace(filled, cache_persist=flags.cache_persist)
        if flags.schema is not None or flags.no_tools:
            filled = replace(filled, tools=flags.tools, mcp=flags.mcp)
        if not (filled.tools or filled.mcp or filled.tool_schemas):  # else settings for tools would end every chat
            filled = replace(filled, allow_tool=flags.allow_tool, max_steps=flags.max_steps)
        if filled.offline and flags.yes and not flags.offline:
            filled = replace(filled, yes=False)
        return replace(filled, defaults=defaults, model_of_project=self.source_of("model") is self.project)

    def applied_to_runs(self, flags: Runs) -> Runs:
        """The flags of a replay or a batch: the model and what surrounds it. How a chat is sampled has no say in it."""
        names = ("model", "template", "offline", "color", "cache_dir", "cache_bytes", "kv_bits", "kv_group_size")
        return self._fill(flags, [key for key in self._set() if key.name in names])

    def _set(self) -> Iterator[Key]:
        for key in KEYS.values():
            if key.flag and self.source_of(key.name) is not None:
                yield key

    def _as_flag(self, key: Key) -> Any:
        value = self.value(key.name)
        if key.kind == "table":
            return option_words(value)
        return not value if key.negated else value

    def _fill(self, flags: Flags, keys: list[Key]) -> Flags:
        """The flags, those left open (None or False) taken from the settings."""
        known = {field.name for field in fields(flags)}
        left = {key.flag: self._as_flag(key) for key in keys if key.flag in known and not getattr(flags, key.flag)}
        return replace(flags, **left)
