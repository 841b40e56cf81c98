"""What the commands of a conversation share: the chat, how it is asked, what stands at the next prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.messages import Message, user
from ..engine.options import RequestOptions
from ..engine.stats import RequestStats
from ..errors import MlxchatError
from .attachments import Attachments
from .failures import lines
from .line_breaking import cut
from .streams import Streams

if TYPE_CHECKING:
    from ..engine.chat import Chat
    from ..engine.outlook import Outlook
    from .ahead import WorkAhead

Command = Callable[[str], None]


@dataclass
class ReplState:
    """One conversation at the terminal.

    opened     gives the chat; waits for its model
    options    how the next message is asked
    draft      stands at the next prompt
    held       a message that could not be sent: it stands at the prompt again after every command, until it is
    requests   what the answers of this chat cost
    """

    opened: Callable[[], Chat]
    options: RequestOptions
    streams: Streams
    attachments: Attachments
    draft: str = ""
    held: str = ""
    ahead: WorkAhead | None = None
    requests: list[RequestStats] = field(default_factory=list)

    @property
    def chat(self) -> Chat:
        """The conversation; waits for the model."""
        return self.opened()

    def settle(self) -> None:
        """Wait for a model that is on its way."""
        self.opened()

    def note(self, line: str) -> None:
        """One line for the user."""
        self.streams.note(line)

    def explain(self, error: MlxchatError) -> None:
        """Its lines of cause and help."""
        for line in lines(error):
            self.note(line)

    def offer(self, message: Message) -> None:
        """Put a message at the prompt again, with what went along with it."""
        self.draft = self.attachments.take_back(message, self.note)

    def go_on_with(self, chat: Chat, options: RequestOptions) -> None:
        """Another conversation takes the place of this one."""
        self.opened = lambda: chat
        self.requests = []
        self.use(options)
        if not self.held:
            self.attachments.clear()

    def use(self, options: RequestOptions) -> None:
        """Ask like this from now on."""
        self.options = options
        if self.ahead is not None:
            self.ahead.use(options)

    def outlook(self, message: Message | None = None) -> Outlook:
        """What the next prompt would be, as near as can be said without `message`."""
        chat = self.chat
        ends_open = not chat.messages or chat.messages[-1].role != "user"
        more = [message or user("…")] if message is not None or ends_open else []
        return chat.outlook(self.options, [*chat.messages, *more])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each has by itself; waits for the model."""
        return self.chat.count_tokens(texts)

    def say_cost_if_spoken(self, lead: str) -> None:
        """The same where something was answered; before that nothing is lost, and it is `lead` alone."""
        if self.requests:
            self.say_cost(lead)
        else:
            self.note(lead)

    def say_cost(self, lead: str) -> None:
        """`lead`, and how much of the conversation the next message will have to prefill again."""
        try:
            outlook = self.outlook()
        except MlxchatError as error:  # a template that refuses the conversation says so again when it is sent
            self.note(lead)
            self.explain(error)
            return
        self.note(f"{lead}; {outlook.new:,} of {outlook.tokens:,} tokens will be prefilled with the next message")


def shortened(text: str, room: int) -> str:
    """The beginning of `text` on one line of at most `room` cells."""
    return cut(" ".join(text.split()), room)


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def oldest(count: int) -> str:
    """`your oldest message`, `your 2 oldest messages`."""
    return "your oldest message" if count == 1 else f"your {count:,} oldest messages"
