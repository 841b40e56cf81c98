"""The entry point. It imports next to nothing before it can meet a Ctrl-C quietly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program on `argv` (default: the process's) and exit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    begun = False
    try:
        _fill_descriptors()
        from .run import run

        begun = True
        code = run(arguments)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is said: from here on Ctrl-C needs no traceback
    except KeyboardInterrupt:
        code = INTERRUPTED
        if not begun and ("--json" in arguments or "--jsonl" in arguments):
            _print_interrupted(arguments)
    _leave(code)


def _print_interrupted(arguments: list[str]) -> None:
    """The JSON of a run that Ctrl-C ended while the program was still being read; a second press can't break it off."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        from ..errors import Interrupted
        from .run import print_json_failure

        print_json_failure(Interrupted("interrupted"), arguments)
    except Exception:  # a module that can't be read a second time, a full stdout: the exit code tells
        pass


def _fill_descriptors() -> None:
    """Put something where a standard stream was closed, so that no file opened later gets its number.

    MLX can't load from descriptor 0, and a session as descriptor 2 would be written over. Stdout stays unwritable,
    which is said as any other failed output is; what goes to a missing stderr is dropped.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _leave(code: int) -> NoReturn:
    """Exit. With MLX loaded at once: where a load failed or Ctrl-C left a thread inside MLX, its teardown can abort."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # full, or nobody reads it: the exit code tells, and the interpreter's last flush mustn't fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (ValueError, AttributeError):
            pass  # closed or absent
    if "mlx.core" in sys.modules:
        os._exit(code)
    sys.exit(code)
