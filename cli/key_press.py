"""Keys from the terminal one by one, as they are pressed."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from .echo import unechoed
from .typed_keys import keys_in, waiting

Keys = Callable[[Callable[[], bool]], AbstractContextManager[Callable[[], str]]]
"""Asked with what says that nobody waits any more: `key_presses`, or a test's own."""

POLL_S = 0.1


@contextmanager
def key_presses(stopped: Callable[[], bool], descriptor: int = 0) -> Iterator[Callable[[], str]]:
    """Within it the terminal is read key by key, from now on: what was typed before goes back to the next prompt.

    Gives a function that waits for the next key: Ctrl-C and Escape are keys too; what comes several at once, as a paste
    or an arrow key does, counts as none ("\\0"). It returns "" if `stopped` says so first, or the terminal is gone.
    """

    def next_key() -> str:
        try:
            while not stopped():
                if select.select([descriptor], [], [], POLL_S)[0]:
                    return _one_key(os.read(descriptor, 1024))
        except OSError:
            pass
        return ""

    with unechoed(descriptor, signals=False):
        keep_for_the_prompt(waiting(descriptor))
        yield next_key


def _one_key(pressed: bytes) -> str:
    if b"\x03" in pressed:
        return "\x03"
    pressed = pressed.lstrip(b"\r\n") or pressed[:1]  # an Enter that came just before answers nothing
    return "\0" if len(set(pressed)) > 1 else pressed[:1].decode("ascii", "replace")


def keep_for_the_prompt(typed: bytes) -> None:
    """Have the next prompt begin with what was typed, as it does with all that is typed while the model works."""
    if not typed:
        return
    from prompt_toolkit.application import get_app_session
    from prompt_toolkit.input.typeahead import store_typeahead

    store_typeahead(get_app_session().input, keys_in(typed.decode("utf-8", "replace")))
