"""`--turns FILE`: the scripted chat, several turns in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.messages import Message
from ..engine.options import RequestOptions
from .one_shot import run_one_shot
from .output import Output

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.tools.loop import ToolLoop


def run_turns(
    chat: Chat, messages: Sequence[Message], options: RequestOptions, output: Output, tools: ToolLoop | None = None
) -> int:
    """Ask each in turn. Ctrl-C, or a turn that had no step left, ends the run with what it has. The exit code.

    Raises the error of a turn that failed.
    """
    for message in messages:
        code = run_one_shot(chat, message, options, output, tools)
        if code:
            return code
    return 0
