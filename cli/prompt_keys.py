"""The keys of the prompt that prompt-toolkit doesn't bind by itself, or binds to something else."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.filters import is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.keys import Keys

from .pastes import Pastes
from .repl_commands import wants_more


def prompt_keys(
    pastes: Pastes, multiline: Callable[[], bool], print_reasoning: Callable[[], None] | None
) -> KeyBindings:
    """Enter, newlines, pastes, the editor, and Ctrl-O, which calls `print_reasoning` with the prompt out of the way.

    multiline   whether Enter begins a new line now, and Alt-Enter sends
    """
    keys = KeyBindings()
    _add_newlines(keys, multiline)
    _add_pastes(keys, pastes)

    @keys.add("c-x", "c-e")
    def _(event: KeyPressEvent) -> None:
        """The edited text stands at the prompt: whoever leaves the editor may have thought better of it."""
        buffer = event.current_buffer
        buffer.text = pastes.expand(buffer.text)
        buffer.open_in_editor()

    if print_reasoning is not None:

        @keys.add("c-o")
        def _(_event: KeyPressEvent) -> None:
            run_in_terminal(print_reasoning)

    return keys


def _add_newlines(keys: KeyBindings, multiline: Callable[[], bool]) -> None:
    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        at_end = buffer.document.is_cursor_at_the_end
        if multiline() and not buffer.text.startswith("/"):
            buffer.insert_text("\n")
        elif at_end and wants_more(buffer.text):
            if buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        if multiline():
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")


def _add_pastes(keys: KeyBindings, pastes: Pastes) -> None:
    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.shorten(event.data))

    @keys.add("backspace", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        length = pastes.length_before(buffer.document.text_before_cursor)
        if length and not buffer.selection_state:
            buffer.delete_before_cursor(length)
        else:
            get_by_name("backward-delete-char").call(event)
