"""Asks the person at the terminal whether a call may run, by one key."""

from __future__ import annotations

from collections.abc import Callable

from ..engine.tools.approvals import Answer, Question
from .key_press import Keys, key_presses
from .streams import Streams
from .tool_lines import argument_lines, visible

_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys("oOyY", "once"),
    **dict.fromkeys("aA", "always"),
    **dict.fromkeys(("d", "D", "n", "N", "\x1b"), "deny"),
    "\x03": "stop",
    "\x04": "stop",
    "": "stop",
}


class TerminalConsent:
    """Shows the whole call, and takes no key for an answer that was pressed before the question stood there.

    stopped     whether the turn is to end, by a signal that came meanwhile
    """

    def __init__(self, streams: Streams, stopped: Callable[[], bool], keys: Keys = key_presses) -> None:
        self._streams = streams
        self._stopped = stopped
        self._keys = keys

    def __call__(self, question: Question) -> Answer:
        """Ask until there is an answer. Enter is none: it may have been meant for something else."""
        with self._streams.question():
            return self._ask(question)

    def _ask(self, question: Question) -> Answer:
        tool, call = question.tool, question.call
        self._streams.transient("")
        self._streams.ask(f"{visible(tool.name)}, from {visible(tool.origin)}, wants to run:\n")
        if tool.runner is not None:
            self._streams.ask(f"  {visible(tool.runner.describe(call.arguments))}\n")
        for line in argument_lines(call.arguments):
            self._streams.ask(f"  {line}\n")
        answer: Answer | None = None
        with self._keys(self._stopped) as next_key:
            self._streams.ask("[o]nce, [a]lways for this tool, [d]eny? ")  # whoever sees it may press a key at once
            while answer is None:
                answer = _ANSWERS.get(next_key())
        self._streams.ask(f"{answer}\n")
        return answer
