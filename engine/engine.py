"""The engine as the rest of the program sees it: start it, send it requests, close it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import cast

from . import backend
from .events import TurnFailed
from .options import EngineOptions
from .switches import Switches

backend.prepare()  # the BLAS is chosen once, before the first import of mlx, which the next two lines bring

from .ahead import AheadRequest  # noqa: E402
from .cache_report import CacheReport as CacheReport  # noqa: E402
from .ending import stopped  # noqa: E402
from .request import Request  # noqa: E402
from .setup import EngineInfo as EngineInfo  # noqa: E402
from .setup import Machinery, build, release_streams  # noqa: E402


@dataclass(frozen=True)
class _Task:
    """Work for the engine thread that is no request (checks, statistics)."""

    run: Callable[[Machinery], object]
    result: Future[object]


def _refuse(item: Request | AheadRequest | _Task) -> None:
    """Tell whoever waits for it that it will not be done."""
    if isinstance(item, Request):
        item.events.put(TurnFailed(stopped(), ""))
    elif isinstance(item, AheadRequest):
        item.done.set()
    else:
        item.result.set_exception(stopped())


class Engine:
    """A loaded model on its own thread. Any thread may call these methods.

    The engine thread is the only one that runs MLX graphs: it loads the model, steps through requests, allocates and
    evaluates restore buffers. Everyone else talks to it through one queue, and hears from it through each request's.
    """

    info: EngineInfo

    def __init__(self, options: EngineOptions, on_notice: Callable[[str], None]) -> None:
        self._inbox: queue.SimpleQueue[Request | AheadRequest | _Task | None] = queue.SimpleQueue()
        self._ready: Future[EngineInfo] = Future()
        self._takes = threading.Lock()  # held to put something into the inbox, and to end that
        self._closed = False
        self._thread = threading.Thread(target=self._run, args=(options, on_notice), name="engine", daemon=True)

    @classmethod
    def start(cls, options: EngineOptions, on_notice: Callable[[str], None]) -> Engine:
        """Load the model and return when it can be asked. `on_notice` gets single lines, from any thread.

        Raises ModelError (and below) where the model can't be used, UsageError or InputError for a bad --template.
        """
        engine = cls(options, on_notice)
        engine._thread.start()
        engine.info = engine._ready.result()
        return engine

    def submit(self, request: Request) -> None:
        """Queue a request; its events end with TurnDone or TurnFailed."""
        self._put(request)

    def prepare(self, request: AheadRequest) -> None:
        """Queue work for a request that hasn't come yet; it gives way to every request."""
        self._put(request)

    def call(self, work: Callable[[Machinery], object]) -> object:
        """Run `work` on the engine thread between two steps and return its result. Raises what `work` raises.

        EngineFailed once the engine is closed.
        """
        task = _Task(work, Future())
        self._put(task)
        return task.result.result()

    def _put(self, item: Request | AheadRequest | _Task) -> None:
        """Into the inbox, from which everything is answered; refused once nothing is taken any more."""
        with self._takes:
            if not self._closed:
                self._inbox.put(item)
                return
        _refuse(item)

    def ensure_running(self) -> None:
        """Raise EngineFailed if the engine has ended: whatever failed then is no fault of a request."""
        self.call(lambda machinery: None)

    def forget(self, conversation: str) -> int:
        """Delete a conversation's KV, in memory and on disk, but for what others use; how many records that was.

        Waits for its running request, if there is one, to be stopped. EngineFailed once the engine is closed.
        """
        return cast(int, self.call(lambda machinery: machinery.loop.forget(conversation)))

    def cache_report(self) -> CacheReport:
        """What the KV cache holds and has done so far. EngineFailed once the engine is closed."""
        return cast(CacheReport, self.call(lambda machinery: machinery.cache_report()))

    def close(self) -> None:
        """End the running request as if it were stopped, free the model and the cache file, end the thread."""
        with self._takes:
            self._closed = True
            self._inbox.put(None)
        self._thread.join()

    # -- the engine thread -------------------------------------------------------------------------------------

    def _run(self, options: EngineOptions, on_notice: Callable[[str], None]) -> None:
        try:
            machinery = build(options, Switches.read(), on_notice)
        except BaseException as error:
            release_streams()
            self._ready.set_exception(error)
            return
        try:
            with machinery.running():
                self._ready.set_result(machinery.info)
                self._serve(machinery)
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)  # whoever starts it would wait for ever
        finally:
            self._refuse_all()

    def _serve(self, machinery: Machinery) -> None:
        """Step until the engine is closed, or until something fails for which no run is to blame."""
        try:
            while self._take(machinery):
                machinery.loop.step()
            machinery.loop.shut()
        except Exception as error:
            machinery.loop.break_off(error)

    def _refuse_all(self) -> None:
        """Nothing is taken any more, and what came too late is told so."""
        with self._takes:
            self._closed = True
        while not self._inbox.empty():
            item = self._inbox.get()
            if item is not None:
                _refuse(item)

    def _take(self, machinery: Machinery) -> bool:
        """Empty the inbox, waiting only if there is nothing else to do; False once the engine is to stop."""
        while not machinery.loop.has_failed:
            try:
                item = self._inbox.get(block=not machinery.loop.busy, timeout=machinery.loop.idle_in_s)
            except queue.Empty:
                if machinery.loop.busy:
                    return True
                machinery.loop.idle()
                continue
            if item is None:
                return False
            if isinstance(item, Request):
                machinery.loop.waiting.append(item)
            elif isinstance(item, AheadRequest):
                machinery.loop.prepare(item)
            else:
                self._answer(item, machinery)
        return False

    @staticmethod
    def _answer(task: _Task, machinery: Machinery) -> None:
        try:
            task.result.set_result(task.run(machinery))
        except BaseException as error:
            task.result.set_exception(error)
