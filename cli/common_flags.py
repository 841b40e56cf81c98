"""What `chat`, `replay` and `batch` have in common: options of one name and meaning, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..engine.options import EngineOptions
from ..errors import UsageError
from .cache_flags import cache_options, kv_quantization

Clash = tuple[str, str, bool]
"""Two options, and whether both were given although they can't go together."""


@dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """One field per option, by its name on the command line."""

    model: str | None = None
    template: str | None = None
    adapter: str | None = None
    think: bool | None = None
    offline: bool = False
    yes: bool = False
    temp: float | None = None
    json: bool = False
    quiet: bool = False
    verbose: int = 0
    no_cache: bool = False
    cache_dir: str | None = None
    cache_bytes: str | None = None
    kv_bits: int | None = None
    kv_group_size: int | None = None

    @property
    def verbosity(self) -> int:
        """-1 quiet, 0, 1 (-v), 2 (-vv)."""
        return -1 if self.quiet else self.verbose

    @property
    def model_name(self) -> str:
        """The model that was asked for, or else the default one."""
        return self.model or EngineOptions().model

    def check_clashes(self, more: Iterable[Clash] = ()) -> None:
        """Raise UsageError for options that contradict each other: those of every command, and `more`."""
        for one, other, clash in (
            ("-q", "-v", self.quiet and self.verbose > 0),
            ("--offline", "--yes", self.offline and self.yes),
            *more,
        ):
            if clash:
                raise UsageError(f"{one} and {other} can't go together", "leave one of them out")

    def engine_options(self) -> EngineOptions:
        """What is fixed while the model is loaded. Raises UsageError for sizes that are none."""
        return EngineOptions(
            model=self.model_name,
            template=self.template,
            offline=self.offline,
            cache=cache_options(self.no_cache, self.cache_dir, self.cache_bytes),
            kv_quantization=kv_quantization(self.kv_bits, self.kv_group_size),
            adapter=self.adapter,
        )
