"""The end of a run: its message and numbers, what is kept of it, and who is told."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from ..errors import EngineFailed, MlxchatError
from .conversations import Conversations
from .events import Notice, TurnFailed
from .hit_rate import HitRate, reuse_of
from .request import Request, Run
from .runner import ModelRunner
from .turn import TurnBuilder


class Ending:
    """Engine thread only. The run is no longer among the active ones.

    lets_go   whether to park a sequence at its end, so that it holds no memory; asked each time
    """

    def __init__(
        self,
        turns: TurnBuilder,
        runner: ModelRunner,
        conversations: Conversations,
        rate: HitRate,
        lets_go: Callable[[], bool],
    ) -> None:
        self._turns = turns
        self._runner = runner
        self._conversations = conversations
        self._rate = rate
        self._lets_go = lets_go

    def end(self, run: Run, *, looking: bool) -> None:
        """It has finished, whichever way. `looking`: others have pictures to look at still."""
        run.end()
        self._runner.settle(run.live)
        run.lazy = None
        self._turns.finish(run)
        if not looking:
            self._turns.forget_pixels()
        run.stats.checkpoint_bytes += run.reuse.end(run.sequence)
        if self._lets_go():
            run.stats.checkpoint_bytes += run.reuse.parking.drop_live(run.sequence)
        if not run.request.uncached:
            self._count(run)
        self._runner.log.flush()
        mx.clear_cache()
        self._turns.deliver(run)

    def _count(self, run: Run) -> None:
        """Add the turn to the process's hit rate, and say once that it has fallen."""
        self._conversations.rest(run.sequence)
        if run.reuse.store is not None:
            run.reuse.store.keep_notes()
        warning = self._rate.add(reuse_of(run.stats, run.fed_before, run.changed, over_budget=run.reuse.is_over_budget))
        if warning is not None:
            run.request.events.put(Notice(warning))

    def fail(self, run: Run, error: Exception) -> None:
        """The run ends, at whatever point; its caches may be in any state, so they are let go."""
        try:
            run.reuse.abandon(run.sequence)
            run.lazy = None
            self._runner.log.flush()
        finally:  # nobody else knows of the run any more
            give_up(run.request, error, run.text)


def stopped() -> EngineFailed:
    """What whoever comes too late is told."""
    return EngineFailed("the engine has stopped", "start mlxchat again")


def give_up(request: Request, error: Exception, partial: str) -> None:
    """Tell whoever asked that nothing more comes; what isn't one of our errors is a failure of the engine."""
    if not isinstance(error, MlxchatError):
        failed = EngineFailed(
            f"the model run failed: {error or type(error).__name__}", "run again with -vv for the traceback"
        )
        failed.__cause__ = error
        error = failed
    request.events.put(TurnFailed(error, partial))
