"""Runs a command in a process group of its own, and leaves nothing of the group behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any, Literal

import psutil

from .excerpt import Excerpt
from .tool import Stopped

POLL_S = 0.05
GRACE_S = 0.5  # between asking to end and killing
_CHUNK = 1 << 16
_ENDING = (signal.SIGTERM, signal.SIGHUP)

How = Literal["exited", "timed_out", "stopped"]


@dataclass(frozen=True)
class Ended:
    """`output` is stdout and stderr in the order they came, cut and cleaned; `code` is negative for a signal."""

    how: How
    code: int
    output: str


def run_process(
    command: Sequence[str], environment: Mapping[str, str], given: bytes, timeout_s: float, stopped: Stopped
) -> Ended:
    """Run `command`, never through a shell, with `given` on its stdin. Raises OSError if it can't be started.

    It has no terminal, and whatever it has started and not ended is killed when it ends, when its time is up, when
    `stopped` says so, and when an exception passes through here.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # on a thread: a command that never reads its input must not hold us
    threading.Thread(target=_give, args=(process.stdin, given), daemon=True).start()
    excerpt = Excerpt()
    with _ended_first(process):
        try:
            how = _watch(process, process.stdout.fileno(), excerpt, time.monotonic() + timeout_s, stopped)
        finally:
            end_group(process)
            process.stdout.close()
    return Ended(how, process.returncode, excerpt.text())


@contextmanager
def _ended_first(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within it a signal that ends this program (kill, a closed terminal) ends the command before.

    One that the program was started to ignore, as nohup does, ends neither: the command has inherited that.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are not for other threads to handle
        yield
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        end_group(process)
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)


def _give(stdin: IO[bytes], given: bytes) -> None:
    with suppress(OSError, ValueError):
        stdin.write(given)
    with suppress(OSError, ValueError):
        stdin.close()


def _watch(process: subprocess.Popen[bytes], out: int, excerpt: Excerpt, deadline: float, stopped: Stopped) -> How:
    """Take the output in until the command has ended. A child of it that holds the pipe open is not waited for."""
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        is_open = True
        while True:
            if stopped():
                return "stopped"
            if time.monotonic() >= deadline:
                return "timed_out"
            if is_open and selector.select(POLL_S):
                chunk = os.read(out, _CHUNK)
                is_open = bool(chunk)
                excerpt.add(chunk)
            elif process.poll() is not None:
                return "exited"
            elif not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command's process group, and those of its children that left the group."""
    family = _descendants(process.pid) if process.poll() is None else []
    _signal(process.pid, family, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and _any_alive(process.pid, family):
        time.sleep(POLL_S / 5)
    _signal(process.pid, family, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return found


def _any_alive(group: int, family: list[psutil.Process]) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return any(member.is_running() for member in family)
    except PermissionError:
        pass
    return True


def _signal(group: int, family: list[psutil.Process], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for member in family:
        with suppress(psutil.Error):
            member.send_signal(number)  # checks that the pid is still the same process's
