"""How the next messages are asked: sampling, reasoning, the system prompt. Each change is kept with the saved chat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..engine.options import RequestOptions, ThinkingOptions
from ..errors import MlxchatError, UsageError
from .input_sources import system_text
from .live_settings import DEFAULT, all_shown, changed, shown, split_setting, thinking_words
from .repl_state import Command, ReplState, shortened
from .sampling_settings import parse_number

_THINK = "/think on | off | show | hide | budget N"
_WORDS = 200
_BUDGET = (int, 0, float("inf"))


class ReasoningDisplay(Protocol):
    """Where reasoning is shown."""

    def show_reasoning(self, shown: bool) -> None:
        """Show the reasoning of the answers to come, or not."""


class ReplSettings:
    """The commands that change how a chat is asked.

    keep    is told of every change, to keep it with the saved chat
    """

    def __init__(self, state: ReplState, display: ReasoningDisplay, keep: Callable[[RequestOptions], None]) -> None:
        self._state = state
        self._display = display
        self._keep = keep

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {"/set": self._set, "/think": self._think, "/system": self._system}

    def _set(self, text: str) -> None:
        options = self._state.options
        if not text:
            for line in all_shown(options.sampling, options.thinking, self._state.chat.sampling_defaults()):
                self._state.note(line)
            return
        name, value = split_setting(text)
        if value:
            self._use(replace(options, sampling=changed(options.sampling, name, value)))
        defaults = None if value and value != DEFAULT else self._state.chat.sampling_defaults()
        self._state.note(shown(self._state.options.sampling, name, defaults))

    def _think(self, text: str) -> None:
        words = text.lower().split()
        match words:
            case []:
                self._state.note(f"thinking is {thinking_words(self._state.options.thinking)}")
            case ["show" | "hide" as how]:
                self._display.show_reasoning(how == "show")
                self._state.note(f"reasoning is {'shown' if how == 'show' else 'hidden'} from here on")
            case ["on" | "off" as how]:
                budget = self._state.options.thinking.budget if how == "on" else None
                self._use_thinking(ThinkingOptions(how == "on", budget))
            case ["budget", number]:
                budget = None if number == DEFAULT else int(parse_number("/think budget", number, _BUDGET, _THINK))
                enabled = self._state.options.thinking.enabled
                self._use_thinking(ThinkingOptions(None if enabled is False else enabled, budget))
            case _:
                raise UsageError(f"/think doesn't know `{text}`", _THINK)

    def _use_thinking(self, thinking: ThinkingOptions) -> None:
        """Some templates say at the prompt's beginning whether to think: what that costs is said where there is any."""
        before = self._new_tokens()
        self._use(replace(self._state.options, thinking=thinking))
        lead = f"thinking is {thinking_words(thinking)}"
        if before is not None and (self._new_tokens() or 0) > before:
            self._state.say_cost(lead)
        else:
            self._state.note(lead)

    def _new_tokens(self) -> int | None:
        """What the next prompt will prefill; None before the first answer, when all of it is new."""
        if not self._state.requests:
            return None
        try:
            return self._state.outlook().new
        except MlxchatError:
            return None

    def _system(self, text: str) -> None:
        chat = self._state.chat
        if not text:
            self._state.note(chat.system if chat.system is not None else "there is no system prompt")
            return
        new = None if text.lower() == "none" else system_text(text)
        if new == chat.system:
            self._state.note("that is the system prompt already")
            return
        chat.set_system(new)
        lead = "no system prompt" if new is None else f"system prompt: “{shortened(new, _WORDS)}”"
        if chat.turns:
            self._state.say_cost(f"{lead}, on a new branch")
        else:
            self._state.note(lead)

    def _use(self, options: RequestOptions) -> None:
        self._state.use(options)
        self._keep(options)
