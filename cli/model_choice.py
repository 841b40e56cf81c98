"""Consent to a download, asked in one place."""

from __future__ import annotations

from collections.abc import Callable

from ..engine.sanitize import sanitize_line
from .input_sources import Stdin
from .key_press import Keys, key_presses
from .streams import Streams, is_terminal

_YES, _NO = ("y", "Y"), ("n", "N", "\x1b", "\x03", "\x04", "")


def ensure_model(name: str, *, offline: bool, yes: bool, streams: Streams, stdin: Stdin, by_key: bool = False) -> None:
    """See that model `name` is on disk, downloading it only with consent.

    Its size is shown, and consent asked for on a terminal; off one it is refused without --yes. Raises ModelError.
    by_key   the terminal is one of a conversation, which gathers no lines: one key is the answer
    """
    from ..engine.models import ensure
    from .download_progress import DownloadProgress

    with DownloadProgress(streams.stderr) as progress:
        ensure(
            name,
            offline=offline,
            confirm=_consent(yes, streams, stdin, by_key),
            progress=None if streams.quiet else progress,
        )


def _consent(yes: bool, streams: Streams, stdin: Stdin, by_key: bool) -> Callable[[str], bool] | None:
    """Who answers the question: --yes, the user, or nobody."""

    def agree(question: str) -> bool:
        streams.note(f"{question} (--yes)")
        return True

    def ask(question: str) -> bool:
        if by_key:
            return ask_by_key(question, streams)
        from typer import confirm

        return confirm(sanitize_line(question), err=True)

    if yes:
        return agree
    return ask if stdin.is_open and stdin.is_terminal and is_terminal(streams.stderr) else None


def ask_by_key(question: str, streams: Streams, keys: Keys = key_presses) -> bool:
    """Whether the next key that is an answer is yes. Enter is none: it may have been meant for something else."""
    with streams.question():
        streams.ask(f"{question} [y]es, [n]o? ")
        with keys(lambda: False) as next_key:
            pressed = next_key()
            while pressed not in (*_YES, *_NO):
                pressed = next_key()
        streams.ask(f"{'yes' if pressed in _YES else 'no'}\n")
    return pressed in _YES
