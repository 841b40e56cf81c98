"""Stores that a forked process must leave alone: it has their memory and their descriptors, but not their threads."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Disownable(Protocol):
    """Whatever holds files and locks that belong to the process that opened them."""

    def disown(self) -> None:
        """Hold nothing, and leave all files to the parent."""
        ...


_known: weakref.WeakSet[Disownable] = weakref.WeakSet()


def own(one: Disownable) -> None:
    """From now on a forked process disowns it."""
    _known.add(one)


def _disown_all() -> None:
    for one in list(_known):
        one.disown()


os.register_at_fork(after_in_child=_disown_all)
