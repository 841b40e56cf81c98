"""One request in flight: its prompt, the calls left to make, how ids are drawn, and what has been said so far."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import mlx.core as mx

from ..cache.keys import BLOCK, Ids
from ..cache.live import LiveCache
from .events import Event, ReasoningDelta, TextDelta
from .feeding import Feeding
from .hit_rate import MissReason
from .markers import MarkerParser, Segment
from .messages import Message
from .options import RequestOptions
from .prompts import Prompt
from .recorded import Recorded
from .reuse import Reuse
from .sampling import OwnRandom, Processor, Sampler
from .sequence import Sequence
from .stats import FinishReason, RequestStats
from .stops import StopStrings


@dataclass
class Request:
    """What was asked. `events` is read by whoever asked; `cancelled` may be set from any thread.

    recorded   the answer is known: feed it instead of sampling one
    ids        the prompt is known: nothing is rendered
    uncached   run from nothing in caches of its own, which touches no other sequence and leaves nothing behind
    day        ISO, what templates may name as today; the first request of a conversation settles it
    """

    number: int
    conversation: str
    messages: tuple[Message, ...]
    options: RequestOptions
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    cancelled: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.perf_counter)
    recorded: Recorded | None = None
    ids: Ids | None = None
    uncached: bool = False
    day: str = field(default_factory=lambda: date.today().isoformat())


@dataclass
class Draw:
    """How the next id is chosen: processors over the ids so far, then the sampler.

    random   the run's own random numbers; None: those of the process
    """

    sampler: Sampler
    processors: list[Processor]
    random: OwnRandom | None = None
    tokens: mx.array | None = None

    def __call__(self, logits: mx.array, fed: mx.array) -> mx.array:
        """logits [1, S, vocabulary] of the call that fed `fed` (uint32 [S]); returns a lazy uint32 [1]."""
        last = logits[:, -1, :]
        if self.processors:
            self.tokens = fed if self.tokens is None else mx.concatenate([self.tokens, fed])
            for processor in self.processors:
                last = processor(self.tokens, last)
        logprobs = last - mx.logsumexp(last, axis=-1, keepdims=True)
        with self.random if self.random is not None else nullcontext():
            return self.sampler(logprobs).astype(mx.uint32)


class Run:
    """The running state of a request. Engine thread only.

    prefill   `calls` holds the (start, end) of the prefill calls left
    decode    `lazy` is the sampled id not yet read; `forced` are ids that take the place of sampled ones; `thought`
              says whether any of the reply was reasoning or its closing marker
    feeding   the recorded answer, if there is one: it is fed instead of decoding
    changed   what differs at the prompt's beginning from the conversation's last one, if anything does
    fed_before   how much of the conversation's last prompt this one was to repeat, in tokens
    """

    def __init__(
        self,
        request: Request,
        prompt: Prompt,
        sequence: Sequence,
        reuse: Reuse,
        draw: Draw,
        parser: MarkerParser,
        detokenizer: Any,
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.sequence = sequence
        self.reuse = reuse
        self.draw = draw
        self.stats = RequestStats()
        self.calls: deque[tuple[int, int]] = deque()
        self.calls_made = 0
        self.lazy: mx.array | None = None
        self.forced: deque[int] = deque()
        self.feeding: Feeding | None = None
        self.max_tokens = 0
        self.thought = False
        self.ids: list[int] = []
        self.segments: list[Segment] = []
        self.finish: FinishReason | None = None
        self.stops = StopStrings(request.options.sampling.stop)
        self.message: Message | None = None
        self.changed: MissReason = "other"
        self.fed_before = 0
        self.prefill_started = 0.0
        self.prefill_ended = 0.0
        self.first_token_at = 0.0
        self._parser = parser
        self._detokenizer = detokenizer

    @property
    def live(self) -> LiveCache:
        """The sequence's KV. Must hold: the run has been admitted."""
        assert self.sequence.live is not None
        return self.sequence.live

    @property
    def decodes(self) -> bool:
        """Whether its next call feeds a single id behind the prompt."""
        return not self.calls and (self.feeding is None or self.feeding.one_by_one)

    @property
    def next_tokens(self) -> int:
        """How many ids its next call feeds, at most."""
        if self.calls:
            return self.calls[0][1] - self.calls[0][0]
        return 1 if self.decodes else BLOCK

    @property
    def thinking(self) -> bool:
        """Whether the next id belongs to the reasoning."""
        return self._parser.in_reasoning

    @property
    def answer_start(self) -> int:
        """Index into `ids` of the first id of the answer."""
        return min(self._parser.answer_start, len(self.ids))

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(segment.text for segment in self.segments if segment.kind == "text")

    def accept(self, token: int, forced: bool = False) -> None:
        """Take a sampled or forced id into the reply and tell the listener what it said.

        The closing marker that a spent budget forces is no reasoning: the count never exceeds the budget.
        """
        self.first_token_at = self.first_token_at or time.perf_counter()
        thinking = self.thinking
        self.thought = self.thought or thinking
        self.ids.append(token)
        self._detokenizer.add_token(token)
        if thinking and not forced:
            self.stats.reasoning_tokens += 1
        self.stats.completion_tokens += 1
        self._say(self._parser.feed(self._detokenizer.last_segment))

    def end(self) -> None:
        """Flush what the detokenizer and the parser held back."""
        self._detokenizer.finalize()
        if not self.stops.stopped:
            self._say(self._parser.feed(self._detokenizer.last_segment))
            self._say(self._parser.finish())
            self._say_text(self.stops.finish())

    def _say(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.kind == "text":
                self._say_text(self.stops.feed(segment.text))
                continue
            self.segments.append(segment)
            if segment.kind == "reasoning":
                self.request.events.put(ReasoningDelta(segment.text, self.stats.reasoning_tokens))

    def _say_text(self, text: str) -> None:
        if text:
            self.segments.append(Segment("text", text))
            self.request.events.put(TextDelta(text))
