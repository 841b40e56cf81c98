"""How a transcript is replayed, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.options import SamplingOptions, ThinkingOptions
from ..engine.recorded import Feed

_THINKING, _SAMPLING = ThinkingOptions(), SamplingOptions()


@dataclass(frozen=True)
class Settings:
    """How to replay.

    feed          how recorded answers go in; generate: sample so many tokens instead
    pad           fill up to the recorded lengths
    max_context   most positions, None for the model's
    parallel      how many conversations run side by side
    real_time     wait after each request for as long as its tools took
    """

    feed: Feed = "prefill"
    generate: int | None = None
    pad: bool = False
    max_context: int | None = None
    thinking: ThinkingOptions = _THINKING
    sampling: SamplingOptions = _SAMPLING
    parallel: int = 1
    real_time: bool = False
