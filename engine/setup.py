"""Puts an engine together: model, prompts, KV store, loop. Runs on the engine thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generation_stream, wired_limit

from ..cache.budget import default_budget, default_queue_bytes
from ..cache.keys import namespace_key
from ..cache.layers import Layout, UnsupportedCache
from ..cache.picture_records import PictureRecords
from ..cache.round_trip import ChangedLibrary, check_round_trip
from ..cache.store import Store
from ..errors import CacheTrouble
from .folders import cache_dir
from .fresh_caches import FreshCaches
from .image_reader import ImageReader
from .loader import LoadedModel, load
from .loop import EngineLoop
from .models import resolve as find_model
from .options import EngineOptions, KVQuantization
from .prompts import PromptRenderer
from .reuse import Reuse
from .runner import CallLog, ModelRunner
from .scripted import Gate, Script
from .switches import Switches
from .template_files import resolve as resolve_template
from .turn import TurnBuilder
from .vision_features import FeatureCache
from .vision_model import VisionModel, placeholder_id, sees_whole_pictures


@dataclass(frozen=True)
class EngineInfo:
    """What a loaded engine can do. `cache_directory` None: nothing is written to disk."""

    model: str
    context_limit: int
    template: str
    reasoning: bool
    tools: bool
    vision: bool
    reuse: bool
    cache_directory: str | None


@dataclass(frozen=True)
class Machinery:
    """The parts of a running engine."""

    info: EngineInfo
    model: LoadedModel
    renderer: PromptRenderer
    runner: ModelRunner
    loop: EngineLoop
    store: Store | None

    @contextmanager
    def running(self) -> Iterator[None]:
        """mlx-lm's surroundings for generation: its stream and the wired limit; at the end the store is closed."""
        try:
            with mx.stream(generation_stream), wired_limit(self.model.model):
                yield
        finally:
            self.loop.sequences.clear()
            if self.store is not None:
                self.store.close()
            release_streams()


def release_streams() -> None:
    """At the end of a thread that ran MLX: newer versions abort at exit if its streams are still there."""
    mx.clear_streams()


def build(options: EngineOptions, switches: Switches, on_notice: Callable[[str], None]) -> Machinery:
    """Load everything. Raises what `load` and the template look-up raise; cache trouble is only told.

    UsageError if the model can't work with the quantization that was asked for.
    """
    model = load(find_model(options.model, options.offline))
    tokenizer = model.tokenizer
    source, label = resolve_template(options.template, tokenizer)
    reader = None
    if model.processor is not None:
        reader = ImageReader(model.processor, tokenizer, placeholder_id(model.model))
    renderer = PromptRenderer(tokenizer, source, label, images=reader)
    script = None
    if switches.script is not None:
        encode = lambda text: list(tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
        script = Script(switches.script, encode, tokenizer.eos_token_id)
    reuse = _reuse(options, model, on_notice)
    vision = _vision(model, reader, reuse) if model.is_vision else None
    turns = TurnBuilder(model, renderer, switches, script, vision)
    runner = ModelRunner(model.model if vision is None else vision, CallLog(switches.call_log))
    loop = EngineLoop(turns, runner, reuse, Gate(switches.gate), switches.drop_live)
    info = EngineInfo(
        model=model.name,
        context_limit=model.context_limit,
        template=label,
        reasoning=renderer.markers.has_reasoning,
        tools=bool(tokenizer.has_tool_calling),
        vision=reader is not None and reader.works,
        reuse=reuse.works,
        cache_directory=str(_directory(options)) if reuse.store is not None else None,
    )
    return Machinery(info, model, renderer, runner, loop, reuse.store)


def _vision(model: LoadedModel, reader: ImageReader | None, reuse: Reuse) -> VisionModel:
    """The calls of a model of mlx-vlm; what its vision tower made is kept with the KV, in the same store."""
    records = PictureRecords(reuse.store) if reuse.store is not None else None
    return VisionModel(model.model, reader, FeatureCache(records))


def _directory(options: EngineOptions) -> Path:
    return options.cache.directory or cache_dir()


def _reuse(options: EngineOptions, model: LoadedModel, on_notice: Callable[[str], None]) -> Reuse:
    """The store of this model's namespace, or less, with one line that says why."""

    language = model.model.language_model if model.is_vision else model.model
    whole = model.is_vision and sees_whole_pictures(model.model)
    make_caches = FreshCaches(language, options.kv_quantization, whole)
    if said := make_caches.check_quantization(model.name):
        on_notice(said)
    if not options.cache.enabled:
        return Reuse(make_caches, None, None, b"", off=True)
    try:
        layout = Layout.of(make_caches())
    except UnsupportedCache as error:
        on_notice(f"KV reuse is off: cache class {error} of this model can't be rewound; each turn is prefilled whole")
        return Reuse(make_caches, None, None, b"")
    try:
        check_round_trip(make_caches)
    except ChangedLibrary as error:
        on_notice(f"KV reuse is off: {error} isn't what it was when mlxchat was made; each turn is prefilled whole")
        return Reuse(make_caches, None, None, b"")
    namespace = namespace_key(
        {
            "weights": model.fingerprint,
            "adapter": "",
            "dtype": model.dtype,
            "kv_quantization": _quantization_name(options.kv_quantization),
            "layout": layout.describe(),
            "processor": model.processor_settings,
            "tenant": options.cache.tenant,
            "rank": "0/1",
        }
    )
    return Reuse(make_caches, layout, _store(options, namespace, on_notice), namespace)


def _quantization_name(quantization: KVQuantization | None) -> str:
    return "" if quantization is None else f"{quantization.bits} bits in groups of {quantization.group_size}"


def _store(options: EngineOptions, namespace: bytes, on_notice: Callable[[str], None]) -> Store | None:
    directory = _directory(options)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        budget = options.cache.budget_bytes or default_budget(directory)
        return Store(directory, namespace, budget, default_queue_bytes(), on_notice)
    except (OSError, CacheTrouble) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        on_notice(f"nothing is checkpointed to disk ({directory}: {cause}); turns are still rewound in memory")
        return None
