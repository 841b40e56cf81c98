"""`python -m mlxchat` on a scripted model, in a process of its own, with everything it may write below one folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from .oracle import Fed, read_log
from .run_program import Ended
from .scripted import GateFolder, Reply, environment, write_script

PATIENCE_S = 120


class Scripted:
    """One run's script, gate, call log and cache folder. Its chats are saved only if it says so."""

    def __init__(self, model: Path, work: Path, *replies: Reply, saves: bool = False, **switches: str) -> None:
        self.work, self.kv, self.log_file = work, work / "kv", work / "calls.jsonl"
        for folder in (work, self.kv):
            folder.mkdir(parents=True, exist_ok=True)
        self.gate = GateFolder(work / "gate")
        script = write_script(work / "script.jsonl", *replies) if replies else None
        self.environment = environment(
            work / "home", script=script, call_log=self.log_file, gate=self.gate.folder, **switches
        )
        self._fixed = ["-m", str(model), "--cache-dir", str(self.kv), "--offline"] + ["--no-save"] * (not saves)

    def arguments(self, *more: str) -> list[str]:
        """For the interpreter."""
        return ["-m", "mlxchat", *more, *self._fixed]

    def start(self, *more: str, prelude: str = "") -> subprocess.Popen[bytes]:
        """The program, running. `prelude` is Python that runs in it before anything else."""
        begin = [sys.executable, *self.arguments(*more)]
        if prelude:
            code = f"import sys\n{prelude}\nfrom mlxchat.cli.main import main\nmain(sys.argv[1:])"
            begin = [sys.executable, "-c", code, *self.arguments(*more)[2:]]
        return subprocess.Popen(
            begin,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.work,
        )

    def run(self, *more: str, patience_s: float = PATIENCE_S) -> Ended:
        """The program from start to end."""
        return finished(self.start(*more), patience_s)

    def log(self) -> list[Fed]:
        return read_log(self.log_file)


def has_ended(pid: int) -> bool:
    """Whether that process is over, also if nobody has reaped it yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def closed_terminal(handler: signal.Handlers) -> Iterator[None]:
    """What SIGHUP does here, and in what is started here, whichever way the tests themselves were started."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def finished(process: subprocess.Popen[Any], patience_s: float = PATIENCE_S) -> Ended:
    """Wait for its end; killed once patience ends."""
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out.decode(), err.decode())
