"""A conversation on a rig, and the bar that most of its requests are held to."""

from __future__ import annotations

import itertools

from mlxchat.engine.chat import Chat
from mlxchat.engine.messages import Message, ToolCall, tool_result, user
from support.rewind_rig import Asked, Rig
from support.rewind_words import CALL_END, calls, options, says, thought

SYSTEM = says("Obey", 30)
_names = itertools.count()


class Talk:
    """A chat on a rig that says something new each time."""

    def __init__(self, rig: Rig, chat: Chat | None = None, *, tools: bool = False, thinking: bool = True) -> None:
        self.rig, self.family = rig, rig.family
        self.chat = chat if chat is not None else rig.chat(SYSTEM)
        self.options = options(rig.family, tools=tools, thinking=thinking)

    def ask(self, message: Message | None = None, *, reasoned: bool = True, end: str = "") -> Asked:
        """A person asks; the model thinks (a scaffold that opens the reasoning is closed even so) and answers."""
        reply = thought(self.family, fresh(6), fresh(6) if reasoned else "")
        return self.rig.ask(self.chat, message or user(fresh(12)), reply, self.options, end=end)

    def retry(self) -> Asked:
        return self.rig.ask(self.chat, None, thought(self.family, fresh(6), fresh(6)), self.options)

    def call(self, message: Message) -> Asked:
        """The model answers with a tool call."""
        reply = calls(self.family, "Paris", fresh(6))
        asked = self.rig.ask(self.chat, message, reply, self.options, end=CALL_END[self.family])
        if not asked.message.tool_calls:  # mlx-lm has no parser for this family's calls
            assert self.family == "deepseek_r1"
            self.chat.messages[-1] = written_call(asked.message.reasoning)
        return asked

    def result(self) -> Message:
        call = self.chat.messages[-1].tool_calls[0]
        return tool_result(fresh(12), call.id, call.name)


def fresh(count: int) -> str:
    """Words that no other text of this run starts with."""
    number, name = next(_names), ""
    while number or not name:
        number, digit = divmod(number, 26)
        name += chr(65 + digit)
    return says(name, count)


def written_call(reasoning: str | None = None) -> Message:
    """A call as a transcript has it: never sampled here."""
    call = ToolCall("abcdefghi", "get_weather", {"city": "Paris"})
    return Message("assistant", reasoning=reasoning, tool_calls=(call,))


def within(asked: Asked) -> Asked:
    assert asked.stats.prefill_tokens <= asked.oracle + 4
    return asked
