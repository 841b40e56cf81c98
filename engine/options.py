"""What the user may choose, as plain data: one object for the engine's life, one for each request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SamplingOptions:
    """How ids are drawn. None means: the model's generation_config.json, else mlx-lm's default.

    `max_tokens` counts reasoning; None means up to the context's end. `extra` holds further sampler or processor
    settings given as `-o k=v` (repetition_penalty, presence_penalty, frequency_penalty, xtc_probability …).
    """

    temp: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ThinkingOptions:
    """`enabled` None leaves it to the template; `budget` is the most reasoning tokens, None for no limit."""

    enabled: bool | None = None
    budget: int | None = None


@dataclass(frozen=True)
class RequestOptions:
    """All that may differ from one request to the next. `max_context` None: what the model was made for.

    whole_reply   refuse a prompt behind which `max_tokens` don't fit, rather than make the reply shorter
    schema        the text of a JSON schema that the answer must follow, checked by `answer_schema`
    """

    sampling: SamplingOptions = SamplingOptions()
    thinking: ThinkingOptions = ThinkingOptions()
    tools: tuple[dict[str, Any], ...] = ()
    max_context: int | None = None
    whole_reply: bool = False
    schema: str | None = None


@dataclass(frozen=True)
class CacheOptions:
    """Where checkpoints go and how large they may grow. `budget_bytes` None: from free disk and memory.

    tenant    conversations of other names share nothing with this engine's
    ttl       seconds after which KV that nobody has needed is deleted; None: as long as there is room
    park      seconds after which a conversation that nobody has used leaves memory for the disk, 0: as each answer
              ends; None: when another conversation comes
    persist   keep the records on disk for the next program
    """

    enabled: bool = True
    directory: Path | None = None
    budget_bytes: int | None = None
    tenant: str = ""
    ttl: float | None = None
    park: float | None = 900.0
    persist: bool = False


@dataclass(frozen=True)
class KVQuantization:
    """Full-attention keys and values are kept in `bits` bits, from the first token on, scaled in groups of a row.

    `group_size` values of a row share a scale and a bias; it must divide the row's width.
    """

    bits: int
    group_size: int = 64


@dataclass(frozen=True)
class EngineOptions:
    """What is fixed while a model is loaded. `template` is a built-in name or a file; None: the model's own.

    `kv_quantization` None: keys and values are kept as the model computes them. `parallel` is the most sequences that
    are active at once. `adapter`: a folder of mlx-lm's trainer.
    """

    model: str = "smollm2"
    template: str | None = None
    offline: bool = False
    cache: CacheOptions = CacheOptions()
    kv_quantization: KVQuantization | None = None
    parallel: int = 1
    adapter: str | None = None
