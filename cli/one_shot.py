"""`mlxchat "question"`: one turn, then the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.messages import Message
from ..engine.options import RequestOptions
from ..errors import Interrupted
from .interrupts import stopping
from .output import Output
from .turn_result import follow

if TYPE_CHECKING:
    from ..engine.chat import Chat


def run_one_shot(chat: Chat, message: Message, options: RequestOptions, output: Output) -> int:
    """Ask once. The exit code: 0, or 130 if Ctrl-C cut the answer short. Raises the turn's error if it failed."""
    with stopping(chat):
        result = follow(chat.ask(message, options), output)
    if result.error:
        raise result.error
    output.turn(result)
    return Interrupted.exit_code if result.finish_reason == "interrupted" else 0
