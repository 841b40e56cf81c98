"""Consent to a download, asked in one place."""

from __future__ import annotations

from collections.abc import Callable

from .input_sources import Stdin
from .streams import Streams, is_terminal


def ensure_model(name: str, *, offline: bool, yes: bool, streams: Streams, stdin: Stdin) -> None:
    """See that model `name` is on disk, downloading it only with consent.

    Its size is shown, and consent asked for on a terminal; off one it is refused without --yes. Raises ModelError.
    """
    from ..engine.models import ensure
    from .download_progress import DownloadProgress

    with DownloadProgress(streams.stderr) as progress:
        ensure(
            name, offline=offline, confirm=_consent(yes, streams, stdin), progress=None if streams.quiet else progress
        )


def _consent(yes: bool, streams: Streams, stdin: Stdin) -> Callable[[str], bool] | None:
    """Who answers the question: --yes, the user, or nobody."""

    def agree(question: str) -> bool:
        streams.note(f"{question} (--yes)")
        return True

    def ask(question: str) -> bool:
        from typer import confirm

        return confirm(question, err=True)

    if yes:
        return agree
    return ask if stdin.is_open and stdin.is_terminal and is_terminal(streams.stderr) else None
