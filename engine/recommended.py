"""One model worth fetching for each size of memory."""

from __future__ import annotations

import sys

_BY_MEMORY = (
    (28e9, "mlx-community/Qwen3.5-35B-A3B-4bit"),
    (14e9, "mlx-community/Qwen3.5-9B-4bit"),
    (7e9, "mlx-community/Qwen3.5-4B-4bit"),
    (3.5e9, "mlx-community/Qwen3-1.7B-4bit"),
)


def recommended(memory: int) -> str | None:
    """The repository for a machine on which a model may use `memory` bytes; None where only the demo runs well.

    On the CPU backend that is everywhere: it multiplies quantized weights at a few tokens a second.
    """
    if sys.platform == "darwin":
        return for_memory(memory)
    return None


def for_memory(memory: int) -> str | None:
    """The largest of the list that runs well within `memory` bytes."""
    return next((name for least, name in _BY_MEMORY if memory >= least), None)
