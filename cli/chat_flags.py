"""The options of `chat` as given, checked against each other and turned into the engine's option objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..engine.options import EngineOptions, RequestOptions, SamplingOptions, ThinkingOptions
from ..errors import UsageError
from .ages import parse_age
from .common_flags import CommonFlags
from .sampling_settings import read_settings
from .schema_flag import schema_text
from .streams import ColorChoice


@dataclass(frozen=True)
class ChatFlags(CommonFlags):
    """One field per option of its own, by its name on the command line; and what the settings say.

    defaults          for a new chat, by field: a saved one goes on with its own
    model_of_project  whether the model among them is a project's choice
    """

    prompt: list[str] | None = None
    system: str | None = None
    think_budget: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    option: list[str] | None = None
    file: list[str] | None = None
    image: list[str] | None = None
    turns: str | None = None
    no_stdin: bool = False
    tools: list[str] | None = None
    tool_schemas: list[str] | None = None
    mcp: list[str] | None = None
    allow_tool: list[str] | None = None
    max_steps: int | None = None
    no_tools: bool = False
    continue_last: bool = False
    resume: str | None = None
    fork: bool = False
    no_save: bool = False
    jsonl: bool = False
    no_stream: bool = False
    no_markdown: bool = False
    color: ColorChoice | None = None
    no_ahead: bool = False
    cache_park: str | None = None
    cache_ttl: str | None = None
    cache_persist: bool = False
    cache_tenant: str | None = None
    schema: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    model_of_project: bool = False

    @property
    def machine_output(self) -> bool:
        """Whether stdout is for a program."""
        return self.json or self.jsonl

    @property
    def resumes(self) -> bool:
        """Whether a saved chat is to go on."""
        return self.continue_last or self.resume is not None

    def for_new_chat(self) -> ChatFlags:
        """The flags, those not given taken from `defaults`. --yes agrees to no download that a project asks for."""
        left = {name: value for name, value in self.defaults.items() if getattr(self, name) is None}
        if left.get("think_budget") is not None and self.think is False:
            del left["think_budget"]
        if "option" in self.defaults:
            left["option"] = [*self.defaults["option"], *(self.option or [])]
        return replace(self, **left, yes=self.yes and not ("model" in left and self.model_of_project))

    def check(self) -> None:
        """Raise UsageError for options that contradict each other or numbers that are none."""
        self.check_clashes(
            (
                ("--json", "--jsonl", self.json and self.jsonl),
                ("--no-think", "--think-budget", self.think is False and self.think_budget is not None),
                ("--turns", "a prompt", self.turns is not None and bool(self.prompt)),
                ("--turns", "-f", self.turns is not None and bool(self.file)),
                ("--turns", "-i", self.turns is not None and bool(self.image)),
                ("-c", "-r", self.continue_last and self.resume is not None),
                ("--fork", "--no-save", self.fork and self.no_save),
                ("--schema", "--tools", self.schema is not None and bool(self.tools)),
                ("--schema", "--tool-schemas", self.schema is not None and bool(self.tool_schemas)),
                ("--schema", "--mcp", self.schema is not None and bool(self.mcp)),
                ("--no-tools", "--tools", self.no_tools and bool(self.tools)),
                ("--no-tools", "--tool-schemas", self.no_tools and bool(self.tool_schemas)),
                ("--no-tools", "--mcp", self.no_tools and bool(self.mcp)),
                ("--cache-persist", "--no-save", self.cache_persist and self.no_save),
                ("--cache-persist", "--no-cache", self.cache_persist and self.no_cache),
            )
        )
        if self.model is not None and not self.model.strip():
            raise UsageError("-m takes the name of a model", "mlxchat models list shows what is here")
        if self.fork and not self.resumes:
            raise UsageError("--fork needs a chat to fork", "name it: -c for the one used last, or -r ID")
        for name, value in (("--temp", self.temp), ("--top-p", self.top_p), ("--min-p", self.min_p)):
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{name} takes a number, not {value}", "see mlxchat --help")

    def engine_options(self) -> EngineOptions:
        """What is fixed while the model is loaded. Raises UsageError for a size or an age that is none."""
        options = super().engine_options()
        cache = replace(
            options.cache,
            tenant=self.cache_tenant or "",
            park=_seconds(self.cache_park, "--cache-park", options.cache.park),
            ttl=_seconds(self.cache_ttl, "--cache-ttl", options.cache.ttl),
            persist=self.cache_persist,
        )
        return replace(options, cache=cache)

    def request_options(self) -> RequestOptions:
        """What goes with each request. Raises UsageError for an -o that is none, and what `schema_text` does."""
        settings = read_settings(self.option or [])
        sampling = SamplingOptions(seed=self.seed, stop=settings.stop, extra=settings.extra)
        flags = {
            name: value
            for name, value in (
                ("temp", self.temp),
                ("top_p", self.top_p),
                ("top_k", self.top_k),
                ("min_p", self.min_p),
                ("max_tokens", self.max_tokens),
            )
            if value is not None
        }
        return RequestOptions(
            sampling=replace(sampling, **flags),  # type: ignore[arg-type]  # each value has its field's type above
            thinking=ThinkingOptions(enabled=self.think, budget=self.think_budget),
            schema=schema_text(self.schema),
        )


def _seconds(age: str | None, flag: str, default: float | None) -> float | None:
    """What an age stands for; UsageError naming the flag if it is none."""
    return default if age is None else float(parse_age(age, flag))
