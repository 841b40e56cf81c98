"""An engine that needs no model: it answers by rules that the message itself names, with plausible numbers.

say TEXT        answers TEXT
think TEXT      reasons "because", then answers TEXT
hang TEXT       says TEXT, then waits until it is stopped
hang silently   waits until it is stopped, and has said nothing
fail TEXT       says TEXT, then fails as an engine does
too long        fails as a prompt longer than the context does
call NAME       calls a tool
fill N          answers so that N % of the context are used
erase TEXT      answers TEXT! with sequences inside that erase the screen and set its title
play FILE       answers what the file says: @wait NAME waits until there is a file of that name beside it, @reason TEXT
                reasons, @prefill DONE TOTAL CACHED reads, any other line is said
crash           raises what no engine should
anything else   is answered by an echo
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlxchat.engine.ahead import AheadRequest
from mlxchat.engine.cache_report import CacheReport
from mlxchat.engine.conversation import Conversation
from mlxchat.engine.conversation_tree import ConversationTree
from mlxchat.engine.events import (
    Event,
    Notice,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDone,
    TurnDone,
    TurnFailed,
)
from mlxchat.engine.hit_rate import HitRate, TurnReuse
from mlxchat.engine.messages import Message, ToolCall, assistant
from mlxchat.engine.options import EngineOptions, RequestOptions
from mlxchat.engine.recorder import Recorder, Unrecorded
from mlxchat.engine.stats import FinishReason, RequestStats
from mlxchat.errors import ContextExceeded, EngineFailed, MlxchatError, ModelIncomplete

PATIENCE_S = 30.0
SLOW_S = 3.0  # long enough to type a message meanwhile


@dataclass(frozen=True)
class FakeInfo:
    model: str = "fake"
    context_limit: int = 2048
    fitting_context: int = 2048
    template: str = "fake"
    reasoning: bool = True
    tools: bool = True
    reuse: bool = True
    cache_directory: str | None = None
    adapter: str | None = None
    name: str = "fake"
    context_words: str = "context 2,048 tokens"

    @classmethod
    def of(cls, name: str) -> FakeInfo:
        """What is known of it before it is loaded."""
        return cls()


@dataclass
class FakeEngine:
    options: EngineOptions = field(default_factory=EngineOptions)
    info: FakeInfo = field(default_factory=FakeInfo)
    closed: bool = False

    @classmethod
    def start(cls, options: EngineOptions, on_notice: Callable[[str], None]) -> FakeEngine:
        if options.model == "loud":
            on_notice("the fake engine is loud")
        if options.model == "slow":
            time.sleep(SLOW_S)
        if options.model == "broken":
            time.sleep(SLOW_S)
            raise ModelIncomplete("the fake engine is broken", "take another")
        return cls(options)

    def cache_report(self) -> CacheReport:
        return fake_report()

    def close(self) -> None:
        self.closed = True


def fake_report() -> CacheReport:
    """One turn that missed 40 tokens, and nothing on disk."""
    rate = HitRate()
    rate.add(TurnReuse(100, 90, 50, "evicted"))
    return CacheReport(rate, None, None, False, 1_000_000, 1)


@dataclass(frozen=True)
class FakeOutlook:
    """What engine.outlook.Outlook says, without arrays."""

    text: str
    limit: int = 2048

    @property
    def ids(self) -> list[int]:
        return list(range(len(self.text.split())))

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def cached(self) -> int:
        return self.tokens // 2

    @property
    def new(self) -> int:
        return self.tokens - self.cached


class FakeChat(Conversation):
    """A conversation with the semantics of the real one: what isn't answered is taken back."""

    def __init__(
        self,
        engine: FakeEngine,
        system: str | None = None,
        history: Sequence[Message] = (),
        recorder: Recorder | None = None,
        day: str | None = None,
        tools: Callable[[], tuple[dict[str, Any], ...]] | None = None,
        *,
        tree: ConversationTree | None = None,
    ) -> None:
        super().__init__(system, history, recorder or Unrecorded(), tree)
        self.engine = engine
        self.day = day
        self.requests: list[RequestStats] = []
        self.options: list[RequestOptions] = []
        self.prepared: list[tuple[str | None, int]] = []
        self.stops = self.retries = 0
        self.hanging = threading.Event()
        self._stopped = threading.Event()
        self._context_tokens = 246

    def ask(self, message: Message, options: RequestOptions) -> Iterator[Event]:
        self._recorder.asked(len(self.messages), message)
        self.messages.append(message)
        self.options.append(options)
        self._stopped.clear()
        return self._recorded(message.text)

    def _recorded(self, prompt: str) -> Iterator[Event]:
        for event in self._answer(prompt):
            if isinstance(event, ReasoningDelta | TextDelta):
                self._recorder.heard(len(self.messages), event)
            yield event

    def retry(self, options: RequestOptions) -> Iterator[Event]:
        self.tree.grow(self.messages)
        while self.messages[-1].role != "user":
            self.messages.pop()
        self.retries += 1
        self.options.append(options)
        self._stopped.clear()
        return self._recorded(self.messages[-1].text)

    def add_result(self, message: Message) -> None:
        self._recorder.asked(len(self.messages), message)
        self.messages.append(message)

    def go_on(self, options: RequestOptions) -> Iterator[Event]:
        """Answers with what the tools gave."""
        self.options.append(options)
        return self._recorded(f"say {self.messages[-1].text}")

    def prepare(self, options: RequestOptions, draft: Message | None = None, least: int = 1) -> AheadRequest:
        """Notes what it was asked to get ready for."""
        self.prepared.append((draft.text if draft is not None else None, least))
        return AheadRequest(0, "", (), options, draft, least)

    def stop(self) -> None:
        self.stops += 1
        self._stopped.set()

    def cache_report(self) -> CacheReport:
        return self.engine.cache_report()

    def outlook(self, options: RequestOptions, messages: Sequence[Message] | None = None) -> FakeOutlook:
        """A prompt of one token per word, of which half is there already."""
        wanted = self.messages if messages is None else messages
        return FakeOutlook("\n".join(f"<{one.role}> {one.text}" for one in wanted))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def sampling_defaults(self) -> dict[str, tuple[float, bool]]:
        return {"temp": (0.6, True), "top_p": (0.0, False), "repetition_penalty": (1.1, True)}

    def clear(self) -> None:
        self._recorder.cleared()
        self._start_over(ConversationTree(self.tree.model))

    def _answer(self, prompt: str) -> Iterator[Event]:
        rule, _, rest = prompt.partition(" ")
        yield PrefillProgress(10, 20, 10)
        yield PrefillProgress(20, 20, 10)
        if rule == "notice":
            yield Notice(rest)
        if rule == "crash":
            raise ZeroDivisionError("a fault on purpose")
        if prompt.endswith("too long"):
            yield self._failed(ContextExceeded("the prompt has 9,999 tokens, the context 2,048", "make it shorter"), "")
        elif rule == "fail":
            yield TextDelta(rest)
            yield self._failed(EngineFailed("the model run failed", "try again"), rest)
        elif rule == "hang":
            yield from self._hang("" if rest == "silently" else rest)
        elif rule == "erase":
            yield from self._say(f"{rest}\x1b[2J\x1b]0;{rest}\x07!")
        elif rule == "call":
            yield ToolCallDone(ToolCall("c1", rest, {"x": 1}))
            yield self._done(replace(assistant(""), tool_calls=(ToolCall("c1", rest, {"x": 1}),)), "stop")
        elif rule == "think":
            yield ReasoningDelta("beca", 1)
            yield ReasoningDelta("use", 2)
            yield from self._say(rest, reasoning="because")
        elif rule == "fill":
            self._context_tokens = 2048 * int(rest) // 100
            yield from self._say("full")
        elif rule == "play":
            yield from self._play(Path(rest))
        else:
            yield from self._say(rest if rule == "say" else f"You said: {prompt}")

    def _say(self, text: str, reasoning: str | None = None) -> Iterator[Event]:
        half = len(text) // 2
        for part in filter(None, (text[:half], text[half:])):
            yield TextDelta(part)
        yield self._done(assistant(text, reasoning), "length" if text.endswith("…") else "stop")

    def _play(self, file: Path) -> Iterator[Event]:
        said, thought = "", ""
        for line in file.read_text(encoding="utf-8").split("\n"):
            what, _, rest = line.partition(" ")
            if what == "@wait":
                while not (file.parent / rest).exists() and not self._stopped.wait(0.005):
                    pass
            elif what == "@reason":
                thought += rest + "\n"
                yield ReasoningDelta(rest + "\n", len(thought.split()))
            elif what == "@prefill":
                yield PrefillProgress(*map(int, rest.split()))
            else:
                text = line + "\n"
                said += text
                for start in range(0, len(text), 7):
                    yield TextDelta(text[start : start + 7])
            if self._stopped.is_set():
                yield self._done(replace(assistant(said, thought or None), interrupted=True), "interrupted")
                return
        yield self._done(assistant(said, thought or None), "stop")

    def _hang(self, text: str) -> Iterator[Event]:
        if text:
            yield TextDelta(text)
        yield Notice("hanging")
        self.hanging.set()
        assert self._stopped.wait(PATIENCE_S), "nobody stopped the fake engine"
        yield self._done(replace(assistant(text), interrupted=True), "interrupted")

    def _done(self, message: Message, reason: FinishReason) -> TurnDone:
        kept = bool(message.text or message.reasoning or message.tool_calls)
        if kept:
            self._answered(message)
        else:
            self._take_back()
        stats = RequestStats(
            turn=len(self.requests) + 1,
            prompt_tokens=4210,
            cached_tokens=4096,
            cached_live_tokens=4096,
            prefill_tokens=114,
            rewind_tokens=312,
            ttft_ms=410.0,
            decode_tokens_per_s=62.0,
            decode_ms=100.0,
            completion_tokens=6,
            reasoning_tokens=2 if message.reasoning else 0,
            context_tokens=self._context_tokens,
            context_limit=2048,
            restore_kind="live",
        )
        self.requests.append(stats)
        if kept:
            self._recorder.answered(len(self.messages) - 1, message, stats)
        return TurnDone(message, reason, stats)

    def _failed(self, error: MlxchatError, partial: str) -> TurnFailed:
        self._take_back()
        return TurnFailed(error, partial)

    def _take_back(self) -> None:
        self.messages.pop()
        self._recorder.stands(len(self.messages))
