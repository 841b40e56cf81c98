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
    try:
        from .run import run

        code = run(list(sys.argv[1:] if argv is None else argv))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is said: from here on Ctrl-C needs no traceback
    except KeyboardInterrupt:
        code = INTERRUPTED
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit. With MLX loaded at once: where a load failed or Ctrl-C left a thread inside MLX, its teardown can abort."""
    if "mlx.core" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass  # closed, full or absent: the exit code tells
        os._exit(code)
    sys.exit(code)
