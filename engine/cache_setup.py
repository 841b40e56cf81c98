"""Opens the store of a model: the file that is kept from program to program, a nameless one, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..cache.budget import default_budget, default_queue_bytes, is_memory_backed
from ..cache.kept import KeptBusy, KeptFile
from ..cache.kept_folder import make_room
from ..cache.keys import BLOCK
from ..cache.layers import Layout
from ..cache.store import Store
from ..errors import CacheTrouble
from .folders import cache_dir, kept_cache_dir, note_kept_dir
from .options import CacheOptions


def directory_of(cache: CacheOptions) -> Path:
    """Where the scratch file goes."""
    if cache.persist:
        return cache.directory or kept_cache_dir()
    return cache.directory or cache_dir()


def reaches_of(layout: Layout) -> dict[str, int]:
    """For each group that doesn't need every block before a position, how many positions before it it needs.

    At least a block, whose rows from its edge on a window below that needs, too (`RowGroup.first_needed`).
    """
    reaches = {group.name: max(group.window, BLOCK) for group in layout.rows if group.window is not None}
    return reaches | ({layout.states.name: 0} if layout.states is not None else {})


def open_store(
    cache: CacheOptions, namespace: bytes, layout: Layout, label: str, on_notice: Callable[[str], None]
) -> Store | None:
    """The store, or None with one line that says why nothing is written. `label` is the model's name."""
    directory = directory_of(cache)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        budget = cache.budget_bytes or default_budget(directory)
        kept = _kept(cache, directory, namespace, label, on_notice)
        if kept is not None:
            budget = make_room(directory, kept.path, budget, cache.ttl)
        store = Store(
            directory, namespace, budget, default_queue_bytes(), on_notice, kept=kept, reaches=reaches_of(layout)
        )
    except (OSError, CacheTrouble) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        on_notice(f"nothing is checkpointed to disk ({directory}: {cause}); turns are still rewound in memory")
        return None
    if cache.ttl is not None:
        store.expire(cache.ttl)
    if cache.directory is None and is_memory_backed(directory):
        on_notice(f"the cache folder {directory} is kept in memory; --cache-dir puts the checkpoints on a disk")
    return store


def _kept(
    cache: CacheOptions,
    directory: Path,
    namespace: bytes,
    label: str,
    on_notice: Callable[[str], None],
) -> KeptFile | None:
    """The kept file of this model; None if none is wanted or it can't be had, which is said."""
    if not cache.persist:
        return None
    note_kept_dir(directory)
    try:
        kept = KeptFile.of(directory, namespace, label)
    except KeptBusy as busy:
        on_notice(f"{busy.message}; this chat's KV cache ends with it")
        return None
    except OSError as error:
        on_notice(f"the KV cache can't be kept ({directory}: {error.strerror}); it ends with this program")
        return None
    if kept.damaged:
        on_notice(f"{kept.damaged} damaged records of the kept KV cache are put aside; those parts are prefilled again")
    return kept
