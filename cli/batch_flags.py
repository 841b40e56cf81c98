"""The options of `batch` as given, checked against each other and turned into the engine's option objects."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from ..engine.options import EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from ..errors import UsageError
from .common_flags import CommonFlags


@dataclass(frozen=True)
class BatchFlags(CommonFlags):
    """One field per option of its own, by its name on the command line."""

    requests: str
    out: str
    parallel: int = 4
    retry_errors: bool = False
    max_tokens: int | None = None

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
        self.check_clashes()
        if self.temp is not None and not math.isfinite(self.temp):
            raise UsageError(f"--temp takes a number, not {self.temp}", "see mlxchat batch --help")
        if not self.out or self.out_path.resolve() == self.requests_path.resolve():
            raise UsageError("--out has to be another file than the requests", "for example --out answers.jsonl")

    def engine_options(self) -> EngineOptions:
        """What is fixed while the model is loaded. Raises UsageError for sizes that are none."""
        return replace(super().engine_options(), parallel=self.parallel)

    def defaults(self) -> RequestOptions:
        """What a request doesn't say itself."""
        sampling = SamplingOptions(temp=self.temp, max_tokens=self.max_tokens)
        return RequestOptions(sampling, ThinkingOptions(enabled=self.think))
