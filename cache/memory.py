"""How much memory KV may still take, from what this machine has free now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import mlx.core as mx
import psutil

_MIB: Final = 1024 * 1024
_READING: Final = 64 * _MIB
"""What a restore takes beside its buffers: the reader's, and a margin."""
_HELD_SHARE: Final = 32
_HELD_FLOOR: Final = 64 * _MIB
_HELD_CAP: Final = 512 * _MIB


def free_bytes() -> int:
    """Bytes that may still be allocated: what the system has available, and on Metal what the GPU may still hold."""
    available = int(psutil.virtual_memory().available)
    limit = mx.device_info().get("max_recommended_working_set_size")
    if limit is None:
        return available
    return min(available, int(limit) - mx.get_active_memory())


def default_held_bytes() -> int:
    """Bytes of recurrent states that the live sequence may keep by reference."""
    return max(_HELD_FLOOR, min(free_bytes() // _HELD_SHARE, _HELD_CAP))


class Memory:
    """Says before a restore reads anything what its buffers may take. `free` is asked each time."""

    def __init__(self, free: Callable[[], int] = free_bytes) -> None:
        self._free = free

    def left(self) -> int:
        """Bytes for the buffers of a restore; MLX lets go of what it only keeps for later first."""
        mx.clear_cache()
        return max(0, self._free() - _READING)
