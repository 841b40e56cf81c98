"""Where a run goes, whoever reads it: people, or a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ..engine.events import Event
from ..errors import MlxchatError
from .turn_result import TurnResult

if TYPE_CHECKING:
    from ..engine.cache_report import CacheReport
    from ..engine.engine import EngineInfo


class Output(ABC):
    """Told of a run's start, of the events of each turn, of each turn's result, and of the end."""

    @abstractmethod
    def session(self, info: EngineInfo, session_id: str | None) -> None:
        """The model is loaded. `session_id` None: nothing is saved."""

    @abstractmethod
    def event(self, event: Event) -> None:
        """Something happened within a turn."""

    @abstractmethod
    def turn(self, result: TurnResult) -> None:
        """A turn ended and was kept. Not called for one that failed."""

    def cache(self, report: CacheReport) -> None:  # noqa: B027  # only programs are told unasked
        """The engine is about to close: what its KV cache held and did."""

    @abstractmethod
    def failed(self, error: MlxchatError) -> None:
        """The run ends with `error`. Called at most once, and nothing after it."""

    @abstractmethod
    def finished(self, exit_code: int) -> None:
        """The run ended by itself, or by Ctrl-C with its partial answer kept."""
