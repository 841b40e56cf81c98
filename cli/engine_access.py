"""The one door to the engine: imported when first needed, so that help and errors of usage never load MLX."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engine.messages import Message
from ..engine.options import EngineOptions
from .stats_line import seconds

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.conversation_tree import ConversationTree
    from ..engine.engine import Engine
    from ..engine.recorder import Recorder
    from .streams import Streams


@dataclass(frozen=True)
class ModelFacts:
    """What a conversation greets with. `fitting_context`: the most positions that fit into memory, about."""

    name: str
    context_limit: int
    fitting_context: int

    @property
    def context_words(self) -> str:
        """How long the context is, and how much of it fits into memory if that is less."""
        words = f"context {self.context_limit:,} tokens"
        return words if self.fitting_context >= self.context_limit else f"{words}, about {self.fitting_context:,} fit"


def model_facts(name: str) -> ModelFacts:
    """What config.json and the sizes of its files tell of a model on disk. Raises ModelError."""
    from ..engine.kv_shape import context_limit
    from ..engine.memory_fit import fitting_context
    from ..engine.models import read_config, resolve

    folder = resolve(name)
    config = read_config(folder.path)
    return ModelFacts(folder.name, context_limit(config), fitting_context(folder, config))


def start_engine(options: EngineOptions, on_notice: Callable[[str], None]) -> Engine:
    """Load the model; blocks until it can answer. Raises ModelError and TemplateError."""
    from ..engine.engine import Engine

    return Engine.start(options, on_notice)


@contextmanager
def running_engine(options: EngineOptions, streams: Streams, *, timed: bool = False) -> Iterator[Engine]:
    """The engine with its model loaded, closed at the end. Raises what `start_engine` does.

    timed   at -v a line says how long loading took
    """
    started = time.monotonic()
    streams.transient(f"loading {options.model} …")
    try:
        engine = start_engine(options, streams.notice)
    finally:
        streams.transient("")
    if timed and streams.verbosity > 0:
        streams.note(f"loaded {engine.info.model} in {seconds(1000 * (time.monotonic() - started))}")
    try:
        yield engine
    finally:
        engine.close()


def new_chat(
    engine: Engine,
    system: str | None,
    history: Sequence[Message] = (),
    recorder: Recorder | None = None,
    day: str | None = None,
    tools: Callable[[], tuple[dict[str, Any], ...]] | None = None,
    *,
    tree: ConversationTree | None = None,
) -> Chat:
    """A conversation that begins with the system prompt and goes on from `history`, watched by `recorder`.

    `day` (ISO) is what templates may name as today; None: today. `tools` gives those the model is told of. `tree` has
    all branches of what was said before.
    """
    from ..engine.chat import Chat

    return Chat(engine, system, history, recorder, day, tools, tree=tree)
