"""How large the scratch file and the writer's queue may be, from what this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

_MIB: Final = 1024 * 1024
_GIB: Final = 1024 * _MIB

_DISK_SHARE: Final = 4
_DISK_FLOOR: Final = 1 * _GIB
_DISK_CAP: Final = 64 * _GIB
_MEMORY_SHARE: Final = 8
_MEMORY_FLOOR: Final = 256 * _MIB
_MEMORY_CAP: Final = 16 * _GIB
_QUEUE_SHARE: Final = 16
# A recurrent model's whole state is one record, up to about 150 MiB, and must pass.
_QUEUE_FLOOR: Final = 192 * _MIB
_QUEUE_CAP: Final = 1 * _GIB


def default_budget(directory: Path) -> int:
    """Bytes that the scratch file in `directory` (which need not exist yet) may grow to.

    A share of the free disk, or of the free memory where the directory is kept in memory, up to a cap, and at least a
    floor where that is not more than half of what is free.
    OSError if not even a parent of the directory can be looked at.
    """
    held = existing(directory)
    if is_memory_backed(held):
        return _share(psutil.virtual_memory().available, _MEMORY_SHARE, _MEMORY_FLOOR, _MEMORY_CAP)
    return _share(psutil.disk_usage(str(held)).free, _DISK_SHARE, _DISK_FLOOR, _DISK_CAP)


def default_queue_bytes() -> int:
    """Bytes of host memory that records waiting to be written may take."""
    return _share(psutil.virtual_memory().available, _QUEUE_SHARE, _QUEUE_FLOOR, _QUEUE_CAP)


def _share(free: int, share: int, floor: int, cap: int) -> int:
    return max(min(floor, free // 2), min(free // share, cap))


def is_memory_backed(path: Path) -> bool:
    """Whether files under `path` are kept in memory (tmpfs, ramfs), so that a cache there saves none."""
    real = existing(path).resolve()
    mounts = [mount for mount in psutil.disk_partitions(all=True) if real.is_relative_to(mount.mountpoint)]
    # Of mounts on one point the last one listed is what is seen.
    nearest = max(enumerate(mounts), key=lambda item: (len(item[1].mountpoint), item[0]), default=None)
    return nearest is not None and nearest[1].fstype in {"tmpfs", "ramfs"}


def existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    absolute = path.absolute()
    return next((step for step in (absolute, *absolute.parents) if step.exists()), absolute)
