"""One conversation, from the side of whoever holds it. Used from one thread; `stop` from any."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, cast

from .ahead import AheadRequest
from .cache_report import CacheReport
from .conversation import Conversation
from .conversation_tree import ConversationTree
from .engine import Engine
from .events import Event, ReasoningDelta, TextDelta, TurnDone, TurnFailed
from .messages import Message
from .options import RequestOptions
from .outlook import Outlook, count_tokens, look_ahead
from .recorder import Recorder, Unrecorded
from .request import Request
from .sampling import model_defaults
from .stats import RequestStats

Tools = tuple[dict[str, Any], ...]
_numbers = itertools.count(1)
_ahead_numbers = itertools.count(-1, -1)  # of work ahead of requests, so that requests count up by one


def next_number() -> int:
    """The number of this process's next request, as the call log names it."""
    return next(_numbers)


class Chat(Conversation):
    """The messages so far, and the requests that they cost.

    A request's user message is kept only with an answer: where nothing was said (an error, an interruption during
    prefill) it is taken back, so that the caller can offer it again. The KV prefilled for it is kept in any case.

    history     messages that were said before, without the system message; the recorder knows them
    recorder    is told of every change before the caller is
    day         ISO, the day on which the history began, which templates may name; None for today
    tools       gives the tools that the model is told of, asked anew for each request; None: those of its options
    tree        all branches of what was said before, `history` among them; None: there are no others
    """

    def __init__(
        self,
        engine: Engine,
        system: str | None = None,
        history: Sequence[Message] = (),
        recorder: Recorder | None = None,
        day: str | None = None,
        tools: Callable[[], Tools] | None = None,
        *,
        tree: ConversationTree | None = None,
    ) -> None:
        super().__init__(system, history, recorder or Unrecorded(), tree)
        self._engine = engine
        self._tools = tools
        self._running: Request | None = None
        self._begin()
        self._day: str = day or date.today().isoformat()

    def clear(self) -> None:
        """Begin a new conversation on the same engine."""
        self._day = date.today().isoformat()
        self._recorder.cleared()
        self._start_over(ConversationTree(self.tree.model))
        self._begin()

    def _begin(self) -> None:
        self.requests: list[RequestStats] = []
        self._ahead = AheadRequest(0, "", (), RequestOptions())  # none yet
        self._name = self._recorder.session_id or uuid.uuid4().hex

    @property
    def name(self) -> str:
        """What the engine and the KV cache call this conversation."""
        return self._name

    @property
    def day(self) -> str:
        """The day (ISO) that templates may name."""
        return self._day

    def cache_report(self) -> CacheReport:
        """What the engine's KV cache holds and has done so far."""
        return self._engine.cache_report()

    def ask(self, message: Message, options: RequestOptions) -> Iterator[Event]:
        """Append `message` (a user's or a tool's), run the model, and append its answer, a partial one too."""
        before = len(self.messages)
        self.messages.append(message)
        self._recorder.asked(before, message)
        yield from self._run(options, before)

    def add_result(self, message: Message) -> None:
        """Append a tool's result. It stays, whatever comes of the request after it."""
        self.messages.append(message)
        self._recorder.asked(len(self.messages) - 1, message)

    def go_on(self, options: RequestOptions) -> Iterator[Event]:
        """Have the model answer the messages as they stand, such as the results of the tools it called."""
        yield from self._run(options, len(self.messages))

    def prepare(self, options: RequestOptions, draft: Message | None = None, least: int = 1) -> AheadRequest:
        """Have the engine prefill what the next message's prompt will begin with, while nobody waits.

        draft   the user's message as far as it is typed: its settled words are prefilled too
        least   not for fewer tokens than this
        The request returned tells when that is `done`; `cancelled` may be set; asking puts an end to it in any case.
        """
        self._ahead.cancelled.set()
        options = self._with_tools(options)
        self._ahead = AheadRequest(
            next(_ahead_numbers),
            self._name,
            self.tree.for_model(self.messages),
            options,
            draft,
            least,
            self._day,
        )
        self._engine.prepare(self._ahead)
        return self._ahead

    def retry(self, options: RequestOptions) -> Iterator[Event]:
        """Another answer to the last user message; the old one and all after it become another branch.

        Nothing to retry gives no event at all.
        """
        last = next(reversed(self.turns), None)
        if last is None:
            return
        self.tree.grow(self.messages)
        old = self.messages[last + 1 :]
        del self.messages[last + 1 :]
        yield from self._run(options, last + 1, old)

    # -- looking -----------------------------------------------------------------------------------------------

    def outlook(self, options: RequestOptions, messages: Sequence[Message] | None = None) -> Outlook:
        """What the prompt of `messages` (those so far) would be and cost. Raises TemplateError, EngineFailed."""
        wanted = self.tree.for_model(self.messages if messages is None else messages)
        options = self._with_tools(options)
        found = self._engine.call(lambda machinery: look_ahead(machinery, self._name, wanted, options, self._day))
        return cast(Outlook, found)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of this model each text has. Raises EngineFailed."""
        return cast(list[int], self._engine.call(lambda machinery: count_tokens(machinery, tuple(texts))))

    def sampling_defaults(self) -> dict[str, tuple[float, bool]]:
        """What holds of settings that nobody chose, by name; and whether the model says so. Raises EngineFailed."""
        found = self._engine.call(lambda machinery: model_defaults(machinery.model.generation_config))
        return cast(dict[str, tuple[float, bool]], found)

    # -- one request -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the running request between two model calls; its events end with TurnDone("interrupted")."""
        running = self._running
        if running is not None:
            running.cancelled.set()

    def _run(
        self, options: RequestOptions, restore_length: int, replaced: list[Message] | None = None
    ) -> Iterator[Event]:
        """Stream one request. If nothing comes of it, the messages go back to what they were before it."""
        self._ahead.cancelled.set()
        options = self._with_tools(options)
        request = Request(next_number(), self._name, self.tree.for_model(self.messages), options, day=self._day)
        self._running = request
        self._engine.submit(request)
        index = len(self.messages)
        kept = ended = False
        try:
            while True:
                event = request.events.get()
                if isinstance(event, ReasoningDelta | TextDelta):
                    self._recorder.heard(index, event)
                ended = isinstance(event, TurnDone | TurnFailed)
                if isinstance(event, TurnDone):
                    event.stats.turn = len(self.requests) + 1
                    self.requests.append(event.stats)
                    said = event.message.generated is not None and event.message.generated.ids
                    kept = bool(said) or event.finish_reason != "interrupted"
                    if kept:
                        self._answered(event.message)
                        self._recorder.answered(index, event.message, event.stats)
                if ended and not kept:
                    self._take_back(restore_length, replaced)
                yield event
                if ended:
                    return
        finally:
            if not ended:  # a caller that stops listening stops the request
                request.cancelled.set()
                self._take_back(restore_length, replaced)
            self._running = None

    def _with_tools(self, options: RequestOptions) -> RequestOptions:
        return options if self._tools is None else replace(options, tools=self._tools())

    def _take_back(self, length: int, replaced: list[Message] | None) -> None:
        del self.messages[length:]
        self.messages.extend(replaced or [])
        self._recorder.stands(len(self.messages))
