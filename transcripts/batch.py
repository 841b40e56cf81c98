"""Runs the requests of a batch on an engine, several at once, and says what came of each as it ends."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ..engine.chat import next_number
from ..engine.engine import Engine
from ..engine.events import TurnDone
from ..engine.messages import Message, TextPart
from ..engine.options import RequestOptions
from ..engine.request import Request
from ..engine.stats import RequestStats
from ..errors import EngineFailed, MlxchatError
from .batch_answers import answered, refused, unusable
from .batch_body import Asked, BadRequest, read_body
from .batch_lines import BatchLine, Object, body_at
from .in_flight import Ended, InFlight
from .json_lines import NotJson

Stage = Callable[[Message], Message]


@dataclass(frozen=True)
class Outcome:
    """What came of a line. `value` goes into the answer file; `stats` None: it never ran, or failed."""

    line: BatchLine
    value: Object
    stats: RequestStats | None = None
    asked: Asked | None = None


@dataclass(frozen=True)
class _Prepared:
    line: BatchLine
    asked: Asked
    opening: str | None


class Batch:
    """One run. `stop` may be called from a signal handler; `stopped` then says so.

    requests   the file that the lines stand in; parallel: how many are under way at once
    defaults   what a request doesn't say itself
    stage      reads the pictures that a message names; raises MlxchatError
    on_notice  gets a request's line and what the engine has to say of it

    Requests that begin with the same system prompt and tools share their KV once one of them has prefilled it. So until
    then the others of them wait, and requests that begin otherwise go first.
    """

    def __init__(
        self,
        engine: Engine,
        requests: BinaryIO,
        parallel: int,
        defaults: RequestOptions,
        stage: Stage = lambda message: message,
        on_notice: Callable[[BatchLine, str], None] = lambda line, text: None,
    ) -> None:
        self.stopped = False
        self._engine = engine
        self._requests = requests
        self._parallel = parallel
        self._defaults = defaults
        self._stage = stage
        self._flights = InFlight(engine, lambda request, text: on_notice(self._running[request.number].line, text))
        self._running: dict[int, _Prepared] = {}
        self._ready: deque[_Prepared] = deque()
        self._leads: dict[str, int] = {}

    def stop(self) -> None:
        """End what is under way without an answer, and start nothing more."""
        self.stopped = True
        self._flights.stop()

    def run(self, lines: Iterable[BatchLine]) -> Generator[Outcome, None, None]:
        """An outcome for each line, in the order in which they end. Lines cut short by `stop` have none.

        Raises EngineFailed if the engine itself has ended: that is no fault of any request.
        """
        coming = iter(lines)
        try:
            while True:
                yield from self._start(coming)
                if not self._flights:
                    return
                ended = self._flights.next()
                outcome = None if ended is None else self._outcome(ended)
                if outcome is not None:
                    yield outcome
        finally:
            self._flights.end()

    # -- starting ----------------------------------------------------------------------------------------------

    def _start(self, coming: Iterator[BatchLine]) -> Iterator[Outcome]:
        """Send what may go now; the outcomes of lines that can't be sent at all."""
        while not self.stopped and len(self._flights) < self._parallel:
            while len(self._ready) < 2 * self._parallel and (line := next(coming, None)) is not None:
                prepared = self._prepared(line)
                if isinstance(prepared, Outcome):
                    yield prepared
                else:
                    self._ready.append(prepared)
            chosen = next((one for one in self._ready if self._may_go(one)), None)
            if chosen is None:
                return
            self._ready.remove(chosen)
            self._send(chosen)

    def _prepared(self, line: BatchLine) -> _Prepared | Outcome:
        if line.fault is not None:
            return Outcome(line, unusable(line))
        try:
            asked = self._asked(line)
        except MlxchatError as error:
            return Outcome(line, refused(line, error))
        except Exception as error:  # whatever a library makes of what a line holds: the others have no part in it
            words = " ".join(str(error).split())[:200]
            return Outcome(
                line, refused(line, BadRequest(f"the request can't be read: {type(error).__name__}: {words}"))
            )
        return _Prepared(line, asked, _opening(asked))

    def _asked(self, line: BatchLine) -> Asked:
        try:
            asked = read_body(body_at(self._requests, line), self._defaults)
        except (NotJson, OSError) as error:
            raise BadRequest(f"the request can't be read: {error}") from error
        staged = tuple(self._stage(message) for message in asked.messages)
        return Asked(staged, asked.options, asked.model, asked.ignored)

    def _may_go(self, prepared: _Prepared) -> bool:
        lead = self._leads.get(prepared.opening) if prepared.opening is not None else None
        return lead is None or self._flights.prefilled(lead)

    def _send(self, prepared: _Prepared) -> None:
        number = next_number()
        if prepared.opening is not None:
            self._leads.setdefault(prepared.opening, number)
        self._running[number] = prepared
        conversation = f"{prepared.line.id}-{number}"
        self._flights.send(Request(number, conversation, prepared.asked.messages, prepared.asked.options))

    # -- ending ------------------------------------------------------------------------------------------------

    def _outcome(self, ended: Ended) -> Outcome | None:
        prepared = self._running.pop(ended.request.number)
        line, asked, event = prepared.line, prepared.asked, ended.event
        if isinstance(event, TurnDone):
            if event.finish_reason == "interrupted":
                return None
            return Outcome(line, answered(line, event, self._engine.info.model), event.stats, asked)
        if prepared.opening is not None and self._leads.get(prepared.opening) == ended.request.number:
            del self._leads[prepared.opening]  # it may have failed before it had prefilled anything
        if isinstance(event.error, EngineFailed):
            self._engine.ensure_running()  # the others fail of it too: that ends the run
        return Outcome(line, refused(line, event.error), asked=asked)


def _opening(asked: Asked) -> str | None:
    """A name for the system prompt and the tools that a request begins with; None if it has neither."""
    words = []
    for message in asked.messages:
        if message.role != "system":
            break
        words += [part.text for part in message.content if isinstance(part, TextPart)]
    if not words and not asked.options.tools:
        return None
    whole = json.dumps([words, asked.options.tools, asked.options.thinking.enabled])
    return hashlib.sha256(whole.encode()).hexdigest()
