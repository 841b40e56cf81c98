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
    from ..engine.tools.loop import ToolLoop

MAX_STEPS_EXIT_CODE = 4


def run_one_shot(
    chat: Chat, message: Message, options: RequestOptions, output: Output, tools: ToolLoop | None = None
) -> int:
    """Ask once. The exit code: 0, 130 if Ctrl-C cut the answer short, 4 if the tool loop had no step left.

    Raises the turn's error if it failed.
    """
    events = chat.ask(message, options)
    with stopping(tools or chat):
        result = follow(events if tools is None else tools.follow(chat, events, options), output)
    if result.error:
        raise result.error
    output.turn(result)
    if result.finish_reason == "max_steps":
        return MAX_STEPS_EXIT_CODE
    return Interrupted.exit_code if result.finish_reason == "interrupted" else 0
