"""A folder of kept files: what there is, room among them, and conversations that are to be forgotten."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from .kept import KeptBusy, KeptFile, leave_mark
from .notes import Notes


@dataclass(frozen=True)
class KeptInfo:
    """One kept file. `label` is the model's name; `used_at` in seconds since 1970; `is_open`: a program has it."""

    path: Path
    label: str
    nbytes: int
    records: int
    used_at: float
    is_open: bool


def kept_files(folder: Path) -> list[Path]:
    """Every kept file, the one used last first."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix == ".kv" and _is_namespace(path.stem)]
    except OSError:
        return []
    return sorted(paths, key=_used_at, reverse=True)


def describe(path: Path) -> KeptInfo:
    """What can be said of a file without its lock."""
    notes = Notes.read(path.with_suffix(".json"))
    return KeptInfo(path, notes.label, _size(path), len(notes.known), _used_at(path), is_open(path))


def make_room(folder: Path, own: Path, budget: int, ttl: float | None) -> int:
    """Remove files of other models that are idle for longer than `ttl` seconds or don't leave half of the budget.

    The one used longest ago goes first; one that a program has stays. Returns what is left of the budget for `own`.
    """
    others = [path for path in kept_files(folder) if path != own]
    total = sum(map(_size, others))
    for path in reversed(others):
        idle = ttl is not None and time.time() - _used_at(path) > ttl
        size = _size(path)
        if (idle or total > budget // 2) and _remove(path):
            total -= size
    return max(0, budget - total)


def forget(folder: Path, user: str) -> int:
    """Delete what only this conversation used; the number of records that went at once.

    Where another program has the file it is asked to do so, at the end of its next turn. OSError as the disk says.
    """
    gone = 0
    for path in kept_files(folder):
        try:
            gone += _forget_in(KeptFile(path, bytes.fromhex(path.stem)), user)
        except KeptBusy:
            leave_mark(path, user)
    return gone


def _forget_in(kept: KeptFile, user: str) -> int:
    scratch = kept.scratch()
    gone = [entry for entry in kept.entries if entry.users == {user}]
    left = [entry for entry in kept.entries if entry.users != {user}]
    for entry in gone:
        assert entry.extent is not None
        scratch.erase(entry.extent)
        scratch.free(entry.extent)
    for entry in left:
        entry.users.discard(user)
    if not left or scratch.tainted:
        kept.remove()
    else:
        kept.save(left)
    scratch.close()
    return len(gone)


def is_open(path: Path) -> bool:
    """Whether a program has the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove(path: Path) -> bool:
    """Remove a file that no program has; whether it is gone."""
    try:
        if is_open(path):
            return False
        for one in (path, path.with_suffix(".json"), *path.parent.glob(f"{path.stem}.*.forget")):
            one.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _is_namespace(name: str) -> bool:
    try:
        return len(bytes.fromhex(name)) == 32
    except ValueError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _used_at(path: Path) -> float:
    """A program that only read its records still wrote its notes."""
    times = [0.0]
    for one in (path, path.with_suffix(".json")):
        try:
            times.append(one.stat().st_mtime)
        except OSError:
            pass
    return max(times)
