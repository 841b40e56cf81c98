"""The options of `batch` as given, checked against each other and turned into the engine's option objects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ..engine.options import EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from ..errors import UsageError
from .cache_flags import cache_options, kv_quantization


@dataclass(frozen=True)
class BatchFlags:
    """One field per option, by its name on the command line."""

    requests: str
    out: str
    parallel: int = 4
    retry_errors: bool = False
    max_tokens: int | None = None
    temp: float | None = None
    model: str | None = None
    template: str | None = None
    think: bool | None = None
    offline: bool = False
    yes: bool = False
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

    @property
    def requests_path(self) -> Path:
        """The file to read."""
        return Path(self.requests).expanduser()

    @property
    def out_path(self) -> Path:
        """The file to add to."""
        return Path(self.out).expanduser()

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        for one, other, clash in (
            ("-q", "-v", self.quiet and self.verbose > 0),
            ("--offline", "--yes", self.offline and self.yes),
        ):
            if clash:
                raise UsageError(f"{one} and {other} can't go together", "leave one of them out")
        if self.temp is not None and not math.isfinite(self.temp):
            raise UsageError(f"--temp takes a number, not {self.temp}", "see mlxchat batch --help")
        if not self.out or self.out_path.resolve() == self.requests_path.resolve():
            raise UsageError("--out has to be another file than the requests", "for example --out answers.jsonl")

    def engine_options(self) -> EngineOptions:
        """What is fixed while the model is loaded. Raises UsageError for sizes that are none."""
        return EngineOptions(
            model=self.model_name,
            template=self.template,
            offline=self.offline,
            cache=cache_options(self.no_cache, self.cache_dir, self.cache_bytes),
            kv_quantization=kv_quantization(self.kv_bits, self.kv_group_size),
            parallel=self.parallel,
        )

    def defaults(self) -> RequestOptions:
        """What a request doesn't say itself."""
        sampling = SamplingOptions(temp=self.temp, max_tokens=self.max_tokens)
        return RequestOptions(sampling, ThinkingOptions(enabled=self.think))
