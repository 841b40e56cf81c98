"""Puts an engine together: model, prompts, KV store, loop. Runs on the engine thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
from mlx_lm.generate import generation_stream, wired_limit

from ..cache.budget import is_memory_backed
from ..cache.keys import namespace_key
from ..cache.layers import Layout
from ..cache.memory import Memory
from ..cache.picture_records import PictureRecords
from ..cache.round_trip import ChangedLibrary, check_round_trip
from ..cache.row_readers import UnsupportedCache
from ..cache.store import Store
from .adapter import read_adapter
from .admission import Admission
from .batching import decodes_together
from .cache_report import CacheReport
from .cache_setup import directory_of, open_store
from .fresh_caches import FreshCaches
from .image_reader import ImageReader
from .kv_shape import cache_shape
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
from .vision_features import MOST_BYTES, FeatureCache
from .vision_model import VisionModel, placeholder_id, sees_whole_pictures

_PATIENCE_S: Final = 30.0  # at the end, for the disk to take what the next program will want


@dataclass(frozen=True)
class EngineInfo:
    """What a loaded engine can do. `cache_directory` None: nothing is written to disk.

    cache_in_memory   the cache's folder is kept in memory, so that it saves none
    cache_kept        the records outlive this program
    adapter           the folder of what changes the model's weights
    """

    model: str
    context_limit: int
    template: str
    reasoning: bool
    tools: bool
    vision: bool
    reuse: bool
    cache_directory: str | None
    cache_in_memory: bool = False
    cache_kept: bool = False
    adapter: str | None = None


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
            if self.info.cache_kept and self.store is not None:
                self.loop.conversations.park_all()
                self.store.drain(_PATIENCE_S)
            self.loop.sequences.clear()
            if self.store is not None:
                self.store.close()
            release_streams()

    def cache_report(self) -> CacheReport:
        """What the cache holds and has done so far."""
        known = self.loop.sequences.values()
        return CacheReport(
            rate=self.loop.rate,
            store=self.store.stats() if self.store is not None else None,
            directory=self.info.cache_directory,
            in_memory=self.info.cache_in_memory,
            live_bytes=sum(sequence.live.nbytes for sequence in known if sequence.live is not None),
            conversations=len(known),
        )


def release_streams() -> None:
    """At the end of a thread that ran MLX: newer versions abort at exit if its streams are still there."""
    mx.clear_streams()


def build(options: EngineOptions, switches: Switches, on_notice: Callable[[str], None]) -> Machinery:
    """Load everything. Raises what `load` and the template look-up raise; cache trouble is only told.

    UsageError if the model can't work with the quantization that was asked for.
    """
    adapter = None if options.adapter is None else read_adapter(options.adapter)
    model = load(find_model(options.model, options.offline), adapter=adapter)
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
    turns = TurnBuilder(model, renderer, switches, script, vision, options.parallel)
    runner = ModelRunner(model.model if vision is None else vision, CallLog(switches.call_log))
    together = options.parallel > 1 and decodes_together(model.model, runner, reuse)
    if options.parallel > 1 and not together:
        on_notice(f"{model.name}'s attention takes one sequence at a time; parallel ones take turns")
    admission = Admission(cache_shape(model.config, 4 if model.dtype == "float32" else 2), Memory())
    at_once = options.parallel > 1 or options.cache.park == 0

    def lets_go() -> bool:
        """What is finished holds nothing beside what is active, unless nothing could bring it back."""
        can_come_back = reuse.store is not None and reuse.store.accepts
        return switches.drop_live or (at_once and (can_come_back or not reuse.works))

    loop = EngineLoop(turns, runner, reuse, Gate(switches.gate), lets_go, admission, options.parallel, together)
    if options.parallel > 1:
        if reuse.store is not None:
            reuse.store.while_reading(loop.let_others_decode)
        if vision is not None:
            vision.between = loop.let_others_decode
    loop.conversations.ttl, loop.conversations.park = options.cache.ttl, options.cache.park
    info = _info(options, model, renderer, reuse)
    return Machinery(info, model, renderer, runner, loop, reuse.store)


def _info(options: EngineOptions, model: LoadedModel, renderer: PromptRenderer, reuse: Reuse) -> EngineInfo:
    directory = directory_of(options.cache) if reuse.store is not None else None
    return EngineInfo(
        model=model.name,
        context_limit=model.context_limit,
        template=renderer.label,
        reasoning=renderer.markers.has_reasoning,
        tools=renderer.markers.has_tools,
        vision=renderer.images is not None and renderer.images.works,
        reuse=reuse.works,
        cache_directory=str(directory) if directory is not None else None,
        cache_in_memory=directory is not None and is_memory_backed(directory),
        cache_kept=reuse.store is not None and reuse.store.is_kept,
        adapter=None if model.adapter is None else model.adapter.path,
    )


def _vision(model: LoadedModel, reader: ImageReader | None, reuse: Reuse) -> VisionModel:
    """The calls of a model of mlx-vlm; what its vision tower made is kept with the KV, in the same store."""
    records = PictureRecords(reuse.store) if reuse.store is not None else None
    return VisionModel(model.model, reader, FeatureCache(records, MOST_BYTES if reuse.works else 0))


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
            "adapter": "" if model.adapter is None else model.adapter.fingerprint,
            "dtype": model.dtype,
            "kv_quantization": _quantization_name(options.kv_quantization),
            "layout": layout.describe(),
            "processor": model.processor_settings,
            "tenant": options.cache.tenant,
            "rank": "0/1",
        }
    )
    store = open_store(options.cache, namespace, layout, model.name, on_notice)
    return Reuse(make_caches, layout, store, namespace, shares=options.parallel > 1)


def _quantization_name(quantization: KVQuantization | None) -> str:
    return "" if quantization is None else f"{quantization.bits} bits in groups of {quantization.group_size}"
