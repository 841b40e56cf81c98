"""The options of `replay` as given, checked against each other and turned into the option objects below."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..engine.options import EngineOptions, SamplingOptions, ThinkingOptions
from ..errors import DataError, UsageError
from .common_flags import CommonFlags
from .input_sources import read_text, system_text
from .streams import ColorChoice

if TYPE_CHECKING:
    from ..transcripts.jobs import Supplied
    from ..transcripts.settings import Settings


@dataclass(frozen=True)
class ReplayFlags(CommonFlags):
    """One field per option of its own, by its name on the command line."""

    transcripts: list[str]
    format: str | None = None
    feed: Literal["prefill", "decode"] = "prefill"
    parallel: int = 1
    real_time: bool = False
    generate: int | None = None
    seed: int | None = None
    system: str | None = None
    tool_schemas: str | None = None
    pad: Literal["recorded"] | None = None
    plan: bool = False
    prefill_rate: float | None = None
    compare: bool = False
    compare_sample: int | None = None
    report: str | None = None
    with_text: bool = False
    min_efficiency: float | None = None
    limit_turns: int | None = None
    max_context: int | None = None
    jsonl: bool = False
    color: ColorChoice | None = None

    @property
    def compares(self) -> bool:
        """Whether any request runs uncached too."""
        return self.compare or self.compare_sample is not None

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        sampled = self.temp is not None or self.seed is not None
        self.check_clashes(
            (
                ("--json", "--jsonl", self.json and self.jsonl),
                ("--plan", "--real-time", self.plan and self.real_time),
                ("--plan", "--compare", self.plan and self.compares),
                ("--plan", "--generate", self.plan and self.generate is not None),
                ("--plan", "--min-efficiency", self.plan and self.min_efficiency is not None),
                ("--compare", "--no-cache", self.compares and self.no_cache),
            )
        )
        for option, needs, lacks in (
            ("--temp and --seed", "--generate", sampled and self.generate is None),
            ("--with-text", "--report", self.with_text and self.report is None),
        ):
            if lacks:
                raise UsageError(f"{option} means nothing without {needs}", f"add {needs}, or leave it out")

    def engine_options(self) -> EngineOptions:
        """What is fixed while the model is loaded. Raises UsageError for sizes that are none."""
        return replace(super().engine_options(), parallel=self.parallel)

    def settings(self) -> Settings:
        """How the requests run."""
        from ..transcripts.settings import Settings

        return Settings(
            feed=self.feed,
            generate=self.generate,
            pad=self.pad is not None,
            max_context=self.max_context,
            thinking=ThinkingOptions(enabled=self.think),
            sampling=SamplingOptions(temp=self.temp, seed=self.seed),
            parallel=self.parallel,
            real_time=self.real_time,
        )

    def supplied(self) -> Supplied:
        """What the user adds. Raises InputError and DataError for files that aren't what they should be."""
        from ..transcripts.jobs import Supplied

        tools = () if self.tool_schemas is None else read_tools(self.tool_schemas)
        return Supplied(system_text(self.system), tools)

    def supplied_words(self) -> list[str]:
        """The same in phrases."""
        return [
            words
            for words, given in (
                ("system prompt", self.system is not None),
                ("tool schemas", self.tool_schemas is not None),
                ("synthetic text up to the recorded lengths", self.pad is not None),
            )
            if given
        ]


def read_tools(name: str) -> tuple[dict[str, Any], ...]:
    """The tools in a JSON file: a list of them, or an object with one under `tools`. Raises InputError, DataError."""
    try:
        value = json.loads(read_text(name))
    except ValueError as error:
        raise DataError(f"{name} is not JSON: {error}", "it holds the tools as a request's `tools` would") from error
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise DataError(f"{name} holds no list of tools", 'for example [{"type": "function", "function": {…}}]')
    return tuple(tool if "function" in tool else {"type": "function", "function": tool} for tool in value)
