"""Consent to a download, asked in one place."""

from __future__ import annotations

from .input_sources import Stdin
from .streams import Streams, is_terminal


def ensure_model(name: str, *, offline: bool, yes: bool, streams: Streams, stdin: Stdin) -> None:
    """See that model `name` is on disk, downloading it only with consent.

    Asked on a terminal, with the size; off one refused without --yes. Raises ModelError.
    """
    from ..engine.models import ensure

    can_ask = stdin.is_open and stdin.is_terminal and is_terminal(streams.stderr)
    ensure(name, offline=offline, yes=yes, confirm=_ask if can_ask else None)


def _ask(question: str) -> bool:
    from typer import confirm

    return confirm(question, err=True)
